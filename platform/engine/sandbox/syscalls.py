"""System call numbers of the machines that have a filter, from the kernel's own tables (asm/unistd_64.h and
asm-generic/unistd.h). A test compares them with the headers of the machine it runs on.
"""

from __future__ import annotations

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# fmt: off
NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "open": 2, "ioctl": 16, "shmget": 29, "socket": 41, "socketpair": 53, "clone": 56, "creat": 85, "chmod": 90,
        "fchmod": 91, "msgget": 68, "ptrace": 101, "syslog": 103, "mknod": 133, "uselib": 134, "personality": 135,
        "vhangup": 153, "modify_ldt": 154, "pivot_root": 155, "_sysctl": 156, "adjtimex": 159, "chroot": 161, "acct":
        163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "iopl":
        172, "ioperm": 173, "create_module": 174, "init_module": 175, "delete_module": 176, "get_kernel_syms": 177,
        "query_module": 178, "quotactl": 179, "nfsservctl": 180, "lookup_dcookie": 212, "clock_settime": 227, "mbind":
        237, "set_mempolicy": 238, "get_mempolicy": 239, "kexec_load": 246, "add_key": 248, "request_key": 249,
        "keyctl": 250, "migrate_pages": 256, "openat": 257, "mknodat": 259, "fchmodat": 268, "unshare": 272, "vmsplice":
        278, "move_pages": 279, "perf_event_open": 298, "fanotify_init": 300, "fanotify_mark": 301, "name_to_handle_at":
        303, "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310, "process_vm_writev":
        311, "kcmp": 312, "finit_module": 313, "memfd_create": 319, "kexec_file_load": 320, "bpf": 321, "userfaultfd":
        323, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount":
        429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "openat2": 437,
        "pidfd_getfd": 438, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447, "set_mempolicy_home_node":
        450, "fchmodat2": 452, "open_tree_attr": 467,
    },
    "aarch64": {
        "lookup_dcookie": 18, "ioctl": 29, "mknodat": 33, "umount2": 39, "mount": 40, "pivot_root": 41, "nfsservctl":
        42, "chroot": 51, "fchmod": 52, "fchmodat": 53, "openat": 56, "vhangup": 58, "quotactl": 60, "vmsplice": 75,
        "acct": 89, "personality": 92, "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106,
        "clock_settime": 112, "syslog": 116, "ptrace": 117, "reboot": 142, "settimeofday": 170, "adjtimex": 171,
        "msgget": 186, "shmget": 194, "socket": 198, "socketpair": 199, "add_key": 217, "request_key": 218, "keyctl":
        219, "clone": 220, "swapon": 224, "swapoff": 225, "mbind": 235, "get_mempolicy": 236, "set_mempolicy": 237,
        "migrate_pages": 238, "move_pages": 239, "perf_event_open": 241, "fanotify_init": 262, "fanotify_mark": 263,
        "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270,
        "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "memfd_create": 279, "bpf": 280, "userfaultfd": 282,
        "kexec_file_load": 294, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree":
        428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "openat2":
        437, "pidfd_getfd": 438, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447,
        "set_mempolicy_home_node": 450, "fchmodat2": 452, "open_tree_attr": 467,
    },
}
