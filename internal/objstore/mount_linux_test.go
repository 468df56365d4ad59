package objstore

import "testing"

func TestNetworkMountsAreKnownByName(t *testing.T) {
	for magic, want := range map[uint32]string{0x6969: "NFS", 0xfe534d42: "SMB2", 0x65735546: "FUSE", 0xef53: "", 0x58465342: "", 0x01021994: ""} {
		if got := networkFileSystems[magic]; got != want {
			t.Errorf("%#x: %q, want %q", magic, got, want)
		}
	}
	if name, err := networkMount(t.TempDir()); err != nil || name != "" {
		t.Errorf("a local directory is taken for %q, %v", name, err)
	}
}
