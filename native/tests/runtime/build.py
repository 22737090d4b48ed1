"""Build program.cu with nvcc from the package index: `python build.py OUTPUT_FOLDER [--cudart static] [--fatbin]`.

Needs pip and gcc; no GPU and no driver. Downloads about 150 MB into a cache (--cache) once. `--fatbin` writes
program.fatbin, which is checked in beside this file: tests that load it need neither nvcc nor a network.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = {
    "nvidia-cuda-nvcc": "13.4.*",
    "nvidia-nvvm": "13.4.*",
    "nvidia-cuda-crt": "13.4.*",
    "nvidia-cuda-cccl": "13.3.3.*",
    "nvidia-cuda-runtime": "13.4.*",
}
# PTX only: what runs on any device, also on the software device. Two architectures, so that one must be chosen.
CODE = ("-gencode=arch=compute_80,code=compute_80", "-gencode=arch=compute_90,code=compute_90")


def toolkit(cache: Path) -> Path:
    """Return the folder of the toolkit, which pip puts together from its packages."""
    folder = cache / "toolkit"
    if not (folder / "done").exists():
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(folder)]
        subprocess.run([*words, *(f"{name}=={version}" for name, version in PACKAGES.items())], check=True)
        (folder / "done").touch()
    return next(folder.glob("nvidia/cu*"))


def build(root: Path, target: Path, words: Sequence[str]) -> None:
    """Run nvcc on program.cu."""
    environment = {**os.environ, "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}", "CUDA_HOME": str(root)}
    for program in [root / "bin", root / "nvvm" / "bin"]:
        for file in program.iterdir():
            file.chmod(file.stat().st_mode | 0o111)
    command = [str(root / "bin" / "nvcc"), *CODE, "-O2", "-std=c++17", f"-I{root / 'include'}", f"-L{root / 'lib'}"]
    subprocess.run([*command, *words, "-o", str(target), "program.cu"], check=True, env=environment, cwd=HERE)


def main(arguments: Sequence[str]) -> None:
    """Build what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--cudart", choices=("shared", "static"), default="shared")
    parser.add_argument("--fatbin", action="store_true", help="the kernels alone")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "gputax" / "cuda")
    chosen = parser.parse_args(arguments)
    root = toolkit(chosen.cache)
    chosen.output.mkdir(parents=True, exist_ok=True)
    output = chosen.output.resolve()
    if chosen.fatbin:
        build(root, output / "program.fatbin", ["-fatbin"])
    else:
        # The package has the shared library under its full name only.
        words = ["-cudart=static"] if chosen.cudart == "static" else ["-cudart=none", "-l:libcudart.so.13"]
        build(root, output / f"program-{chosen.cudart}", words)


if __name__ == "__main__":
    main(sys.argv[1:])
