"""An interrupt before the command line is loaded."""

from __future__ import annotations

import subprocess
import sys


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
