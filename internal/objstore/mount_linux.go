package objstore

import "golang.org/x/sys/unix"

// networkFileSystems maps the magic numbers of statfs(2) to the file systems that are, or may be, shared with other
// machines.
var networkFileSystems = map[uint32]string{
	0x6969:                 "NFS",
	0x517b:                 "SMB",
	0xff534d42:             "CIFS",
	0xfe534d42:             "SMB2",
	unix.FUSE_SUPER_MAGIC:  "FUSE",
	unix.CEPH_SUPER_MAGIC:  "Ceph",
	unix.AFS_SUPER_MAGIC:   "AFS",
	unix.AFS_FS_MAGIC:      "AFS",
	unix.CODA_SUPER_MAGIC:  "Coda",
	unix.OCFS2_SUPER_MAGIC: "OCFS2",
	unix.V9FS_MAGIC:        "9P",
	0x01161970:             "GFS2",
	0x0bd00bd0:             "Lustre",
	0x47504653:             "GPFS",
	0x786f4256:             "VirtualBox shared folder",
	0xbacbacbc:             "VMware shared folder",
}

// networkMount names the network file system that a directory is on, or returns "".
func networkMount(dir string) (string, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return "", err
	}
	return networkFileSystems[uint32(stat.Type)], nil
}
