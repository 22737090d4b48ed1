"""An interrupt before the command line is loaded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gputax

# As the installed script does. The byte says that main() has begun: before that, Python itself is starting, and an
# interrupt is its own affair. A busy machine may not run the process for long after it, which is part of the test.
SCRIPT = """
import os, sys
from gputax.cli.main import main
class Begun:
    def find_spec(self, name, path=None, target=None):
        if name == "click": os.write(1, b".")
sys.meta_path.insert(0, Begun())
sys.exit(main())
"""


def test_an_interrupt_while_a_module_is_imported_is_no_traceback() -> None:
    code = (
        "import builtins, sys\n"
        "from gputax.cli.main import main\n"
        "loaded = {'click', 'gputax.errors', 'gputax.cli.verbs'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.exit(main(['run']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "gputax: interrupted\n"


@pytest.mark.parametrize("after_ms", [20, 50, 100, 200, 300])
def test_an_interrupt_in_the_first_moments_is_130_without_a_traceback(tmp_path: Path, after_ms: int) -> None:
    words = ["run", "--engine", "synthetic", "--scenario", "single-stream", "--out", str(tmp_path / "out")]
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.read(1) == b"."
            time.sleep(after_ms / 1000)
            process.send_signal(signal.SIGINT)
            errors = process.communicate(timeout=60)[1].decode()
        assert "Traceback" not in errors
        assert "interrupted" in errors
        assert process.returncode == 130


@pytest.mark.parametrize("module", ["gputax.plan.suites", "gputax.text"])
def test_an_interrupt_that_python_would_ignore_in_an_import_still_stops_the_command(module: str) -> None:
    """Also if the command ends before another moment outside of an import comes."""
    code = (
        "import os, signal, sys\n"
        "from gputax.cli.main import main\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            try:\n"  # as in a callback of the import system, whose exceptions Python ignores
        "                os.kill(os.getpid(), signal.SIGINT)\n"
        "            except KeyboardInterrupt: pass\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.exit(main(['run', '--dry-run']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ)
    assert (done.returncode, done.stderr.strip()) == (130, "gputax: interrupted")


# As pip writes it.
INSTALLED = "import sys\nfrom gputax.cli.main import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
INTERRUPTING = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
"""


@pytest.mark.parametrize("module", ["gputax.cli", "gputax.cli.main"])
@pytest.mark.parametrize("how", ["script", "module"])
def test_an_interrupt_before_main_is_130_without_a_traceback(tmp_path: Path, module: str, how: str) -> None:
    """Ctrl-C while the first module of ours is imported: main() has no handler in place yet."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING.format(module=module))
    (tmp_path / "gputax").write_text(INSTALLED)
    words = [str(tmp_path / "gputax")] if how == "script" else ["-m", "gputax"]
    path = os.pathsep.join([str(tmp_path), str(Path(gputax.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, *words, "--version"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path / "..",
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "gputax: interrupted\n")


@pytest.mark.parametrize("words", [["python", "-c", "…"], ["python", "-m", "gputax.worker"], ["python", "notebook.py"]])
def test_a_program_that_imports_gputax_keeps_its_interrupts(words: list[str]) -> None:
    code = (
        "import signal, sys\n"
        f"sys.orig_argv[:], sys.argv[:] = {words}, {words[1:]}\n"
        "import gputax\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
