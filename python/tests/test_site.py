# SPDX-License-Identifier: Apache-2.0
# tier: plain=long
"""The web site: mkdocs builds it without a warning, and a browser shows a page of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zlib

import kit

VENV = os.environ.get("MR_SITE_VENV") or os.path.join(kit.BUILD, "venv-site")
MKDOCS = os.path.join(VENV, "bin", "mkdocs")
REQUIREMENTS = os.path.join(kit.SOURCE, "python", "site", "requirements.txt")
CHROMIUM = shutil.which("chromium")


def install() -> None:
    """mkdocs, from PyPI."""
    if os.path.exists(MKDOCS):
        return
    pip = [os.path.join(VENV, "bin", "pip"), "install", "-q", "-r", REQUIREMENTS]
    for command in ([sys.executable, "-m", "venv", VENV], pip):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [""]
            raise unittest.SkipTest(f"mkdocs cannot be installed from PyPI: {lines[-1]}")


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        install()
        folder = tempfile.TemporaryDirectory(prefix="millrace-site-")
        cls.addClassCleanup(folder.cleanup)
        cls.site = os.path.join(folder.name, "site")
        config = os.path.join(kit.SOURCE, "python", "site", "mkdocs.yml")
        cls.built = subprocess.run(
            [MKDOCS, "build", "--strict", "-f", config, "-d", cls.site],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        )

    def text(self, page: str) -> str:
        with open(os.path.join(self.site, page), encoding="utf-8") as f:
            return f.read()

    def test_builds_without_a_warning(self) -> None:
        self.assertEqual(self.built.returncode, 0, self.built.stdout + self.built.stderr)

    def test_reference_has_every_public_name(self) -> None:
        import millrace as mr

        def missing(page: str, names: list[str]) -> list[str]:
            text = self.text(page)
            return [name for name in names if f'id="millrace.{name}"' not in text]

        methods = [n for n in dir(mr.Dataset) if not n.startswith("_")]
        self.assertEqual(missing("api/dataset.html", [f"Dataset.{n}" for n in methods]), [])
        functions = [n for n in dir(mr.fn) if not n.startswith("_") and n in vars(mr.fn) and n[0].islower()]
        functions = [n for n in functions if getattr(vars(mr.fn)[n], "__module__", "") == "millrace.fn"]
        self.assertGreater(len(functions), 80)
        self.assertEqual(missing("api/fn.html", [f"fn.{n}" for n in functions]), [])
        sources = [n for n in vars(mr) if n.islower() and type(vars(mr)[n]).__name__ == "function" and n[0] != "_"]
        self.assertIn("tfrecord", sources)
        self.assertEqual(missing("api/millrace.html", sources), [])
        types = ("Ragged", "TensorSpec", "Expr")
        self.assertEqual(missing("api/types.html", list(types)), [])
        errors = [n for n in vars(mr) if isinstance(vars(mr)[n], type) and issubclass(vars(mr)[n], mr.Error)]
        self.assertEqual(missing("api/errors.html", errors), [])

    def test_code_after_a_list_is_code(self) -> None:
        text = self.text("expressions.html").replace("<span></span>", "")
        self.assertIn("<code>range(3).map(x =&gt; [4, 5, 6][x])", text)

    def test_loads_nothing_from_elsewhere(self) -> None:
        for page in ("index.html", "python.html", "api/dataset.html"):
            for mark in ('src="http', 'rel="stylesheet" href="http', "fonts.googleapis"):
                self.assertNotIn(mark, self.text(page), page)

    def test_a_browser_shows_the_tutorial(self) -> None:
        if CHROMIUM is None:
            self.skipTest("chromium is not installed")
        import millrace as mr

        picture = os.path.join(self.site, "picture.png")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1300,1000"]
        page = "file://" + os.path.join(self.site, "python.html")
        subprocess.run([CHROMIUM, *options, f"--screenshot={picture}", page], capture_output=True, timeout=120)
        pixels = next(iter(mr.files(picture).map(lambda x: mr.fn.decode_png(x["contents"], channels=3))))
        self.assertEqual(pixels.shape[1:], (1300, 3))
        head, middle = pixels[5, 600], pixels[100:, 250:900]
        self.assertGreater(int(head[1]) - int(head[0]), 80, "the head of the page is teal")
        dark = (middle.max(axis=2) < 110).mean()
        self.assertTrue(0.01 < dark < 0.3, f"{dark:.1%} of the page is text")
        self.assertGreater(len(zlib.compress(middle.tobytes())), 20_000)


if __name__ == "__main__":
    kit.main()
