package process

import "testing"

func TestSizesAreReadInPowersOf1024(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "17B": 17, "2KiB": 2 << 10, "512MiB": 512 << 20, "1 GiB": 1 << 30, "3TiB": 3 << 40} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "B", "MiB", "-1MiB", "0", "1.5GiB", "1GB", "9999999999TiB", "ten"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}
