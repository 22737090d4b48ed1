"""The one error of xen-cri: its text is for whoever reads containerd's log."""


class Refused(Exception):
    """What was asked for cannot be done; nothing was left behind."""
