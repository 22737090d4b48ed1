"""Print the status document of a GPU proxy; runs in dom0 with `python3 -S`."""

import socket
import sys

with socket.socket(socket.AF_UNIX) as reader:
    reader.settimeout(60)
    reader.connect(sys.argv[1])
    reader.sendall(b"\n")
    sys.stdout.write(b"".join(iter(lambda: reader.recv(65536), b"")).decode())
