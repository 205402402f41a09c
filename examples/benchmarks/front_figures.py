"""Run all commands behind the figures of the pages that people read first.

They are those of the benchmarks and of the quick start that `PAGES` name, each once,
and the code of `TOUR`. A page of doc/benchmarks gets what they print, under the date
and the processor. ``--list`` prints the commands and runs none, and words choose those
that have one of them: ``python examples/benchmarks/front_figures.py quickstart tour``.
"""

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = "README.md", "doc/index.md", "doc/user_guide/boosting.md"
TOUR = "doc/user_guide/tour.md"


def commands():
    """Return the arguments of Python by the command that a page names, in order."""
    text = "\n".join((ROOT / page).read_text("utf-8") for page in PAGES)
    scripts = re.findall(r"python (examples/(?:benchmarks/|quickstart)[^`\n]+)", text)
    code = re.findall(r"(?ms)^```python\n(.*?)^```$", (ROOT / TOUR).read_text("utf-8"))
    found = {f"python {script}": shlex.split(script) for script in scripts}
    return found | {f"the code of {TOUR}": ["-c", "\n".join(code)]}


def processor():
    """Return the name of the processor and the number of its cores."""
    path = Path("/proc/cpuinfo")  # of Linux, where `platform` has no name
    text = path.read_text() if path.exists() else ""
    names = re.findall(r"model name\s*: (.+)", text)
    return f"{[*names, platform.processor()][0]}, {os.cpu_count()} cores"


def main():
    """Run the chosen commands and write the page anew after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--list", action="store_true")
    options, date = parser.parse_args(), time.strftime("%Y-%m-%d")
    page = f"# Figures of the first pages\n\nMeasured on {date}: {processor()}.\n"
    for name, arguments in commands().items():
        if all(word not in name for word in options.words or [""]):
            continue
        print(name, flush=True)
        if not options.list:
            command, started = [sys.executable, *arguments], time.time()
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            took = f"{time.time() - started:.0f} seconds"
            page += f"\n`{name}`, {took}, exit status {done.returncode}:\n"
            page += f"\n```text\n{done.stdout.rstrip()}\n```\n"
            (ROOT / f"doc/benchmarks/{date}-first-pages.md").write_text(page, "utf-8")


if __name__ == "__main__":
    main()
