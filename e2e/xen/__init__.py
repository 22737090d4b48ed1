"""Xen 4.17 with a Debian dom0 in an emulator: images from Debian's packages, one boot per scenario, its transcript."""
