#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/install: what lies where, that it works from there, and that it goes without a trace.

    install_test.py INSTALL OCCLD OCCLCTL OCCL-PERF OCCL-SIM LIBOCCL
"""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

INSTALL = os.path.abspath(sys.argv[1])
PROGRAMS = dict(zip(("occld", "occlctl", "occl-perf", "occl-sim"), sys.argv[2:6]))
LIBRARY = sys.argv[6]


def run(*command, environment=None, **more):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith("OCCL_") and name not in ("LD_LIBRARY_PATH", "XDG_RUNTIME_DIR")}
    env.update(environment or {})
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, **more)


class Scratch:
    """A folder with what is built, and a prefix in it."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="occl-install.", dir="/tmp")
        self.built, self.prefix = self.folder + "/built", self.folder + "/prefix"
        for folder in ("bin", "lib"):
            os.makedirs(os.path.join(self.built, folder))
        for name, path in PROGRAMS.items():
            shutil.copy(path, os.path.join(self.built, "bin", name))
        shutil.copy(LIBRARY, os.path.join(self.built, "lib", "liboccl.so.0"))

    def install(self, *flags, prefix=None):
        return run(INSTALL, "--prefix", prefix or self.prefix, "--built", self.built, *flags)

    def listing(self, below=None):
        found = {}
        below = below or self.prefix
        for folder, folders, files in os.walk(below):
            for name in folders + files:
                path = os.path.join(folder, name)
                mode = os.lstat(path).st_mode
                content = os.readlink(path) if stat.S_ISLNK(mode) else \
                    open(path, "rb").read() if stat.S_ISREG(mode) else None
                found[os.path.relpath(path, below)] = (mode, content)
        return found

    def close(self):
        shutil.rmtree(self.folder)


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def good(result):
    check(result.returncode == 0, "%s: %s" % (result.args, result.stdout))
    return result.stdout


def a_program_builds_with_pkg_config_and_runs(s):
    good(s.install())
    env = {"PKG_CONFIG_PATH": s.prefix + "/lib/pkgconfig", "TMPDIR": s.folder, "HOME": s.folder}
    flags = good(run("pkg-config", "--cflags", "--libs", "occl", environment=env)).split()
    version = good(run(s.prefix + "/bin/occlctl", "--version")).split()[1]
    check(good(run("pkg-config", "--modversion", "occl", environment=env)).strip() == version,
          "occl.pc has another version")
    source = s.prefix + "/share/doc/occl/examples/hello_all_reduce.c"
    launch = [s.prefix + "/bin/occlctl", "run", "-n", "2"]
    good(run("cc", source, *flags, "-o", s.folder + "/a"))
    said = good(run(*launch, s.folder + "/a",
                    environment=dict(env, LD_LIBRARY_PATH=s.prefix + "/lib")))
    check(said.count("the sum is 3") == 2, said)
    check(run(s.folder + "/a").returncode == 127, "it runs without a path of the library")
    good(run("cc", source, *flags, "-Wl,-rpath," + s.prefix + "/lib", "-o", s.folder + "/b"))
    said = good(run(*launch, s.folder + "/b", environment=env))
    check(said.count("the sum is 3") == 2, said)
    said = good(run(*launch, s.prefix + "/bin/occl-perf", "-b", "8", "-n", "2", "all_reduce",
                    environment=env))
    check("all_reduce" in said or "sum" in said, said)
    good(run(s.prefix + "/bin/occl-sim", "cluster", "--ops", "2"))


def programs_know_nothing_of_the_build(s):
    good(s.install())
    for name in list(PROGRAMS) + ["../lib/liboccl.so.0"]:
        said = good(run("readelf", "-d", os.path.join(s.prefix, "bin", name)))
        check("RPATH" not in said and "RUNPATH" not in said, "%s: %s" % (name, said))
        said = good(run("ldd", os.path.join(s.prefix, "bin", name)))
        check("not found" not in said and "bazel" not in said, "%s: %s" % (name, said))
    check("(SONAME)" in said or "liboccl.so.0" in
          good(run("readelf", "-d", s.prefix + "/lib/liboccl.so")), "no soname")


def twice_is_the_same_as_once(s):
    good(s.install())
    once = s.listing()
    good(s.install())
    check(s.listing() == once, "the second installation differs")


def what_an_earlier_one_had_is_removed(s):
    good(s.install())
    with open(s.prefix + "/share/occl/manifest", "a", encoding="utf-8") as file:
        file.write("file bin/occl-old\n")
    open(s.prefix + "/bin/occl-old", "w", encoding="utf-8").close()
    good(s.install())
    check(not os.path.exists(s.prefix + "/bin/occl-old"), "bin/occl-old is still there")


def uninstalling_leaves_only_what_is_not_ours(s):
    good(s.install())
    good(s.install("--uninstall"))
    check(not os.path.exists(s.prefix), "the prefix is still there")
    os.makedirs(s.prefix + "/bin")
    open(s.prefix + "/bin/other", "w", encoding="utf-8").close()
    before = s.listing()
    good(s.install())
    good(s.install("--uninstall"))
    check(s.listing() == before, "left: %s" % sorted(set(s.listing()) ^ set(before)))
    result = s.install("--uninstall")
    check(result.returncode == 1 and "nothing was installed" in result.stdout, result.stdout)


def nothing_is_written_outside(s):
    destdir = s.folder + "/destination"
    good(s.install("--destdir", destdir, "--libdir", "lib/tuple", prefix="/opt/occl"))
    check(sorted(os.listdir(s.folder)) == ["built", "destination"], str(os.listdir(s.folder)))
    check(os.listdir(destdir) == ["opt"], str(os.listdir(destdir)))
    text = good(run("cat", destdir + "/opt/occl/lib/tuple/pkgconfig/occl.pc"))
    check("prefix=/opt/occl\nlibdir=${prefix}/lib/tuple\n" in text, text)
    unit = good(run("cat", destdir + "/opt/occl/lib/systemd/system/occld.service"))
    check("ExecStart=/opt/occl/bin/occld\n" in unit, unit)
    check(destdir not in text + unit, "a file names the destination")
    # A link that leads out of the prefix is not followed.
    outside = s.folder + "/outside"
    os.makedirs(outside)
    os.makedirs(s.prefix)
    os.symlink(outside, s.prefix + "/include")
    result = s.install()
    check(result.returncode == 1 and "outside" in result.stdout, result.stdout)
    check(not os.listdir(outside), "something was written there")


def a_damaged_manifest_removes_nothing(s):
    good(s.install())
    victim = s.folder + "/victim"
    open(victim, "w", encoding="utf-8").close()
    for line in ("file ../victim", "file " + victim, "folder a/../../victim", "nonsense"):
        with open(s.prefix + "/share/occl/manifest", "a", encoding="utf-8") as file:
            file.write(line + "\n")
        result = s.install("--uninstall")
        check(result.returncode == 1 and "nothing was removed" in result.stdout, result.stdout)
        check(os.path.exists(victim) and os.path.exists(s.prefix + "/bin/occld"), "removed")


def mistakes_are_named(s):
    for flags, text in ((["--prefix", s.folder + "/a b"], "blanks"),
                        (["--prefix", s.prefix, "--libdir", "../x"], "--libdir"),
                        (["--prefix", s.prefix, "--built", s.folder], "is not built"),
                        (["--prefix", s.built + "/bin/occld"], "is not a folder")):
        result = run(INSTALL, "--built", s.built, *flags)
        check(result.returncode == 1 and text in result.stdout, result.stdout)
    check(sorted(os.listdir(s.folder)) == ["built"], str(os.listdir(s.folder)))


def man_finds_the_pages(s):
    good(s.install())
    env = {"MANPATH": s.prefix + "/share/man"}
    for page in ("occl_all_reduce", "occlctl", "occld", "occld.conf"):
        good(run("man", "-w", page, environment=env))
    said = good(run("man", "3", "occl_wait", environment=dict(env, MANPAGER="cat")))
    check("occl_wait(struct occl_request request)" in said, said)


def each_page_opens_by_its_path(s):
    """As `man -l FILE` from any folder, where a page that names another one does not find it."""
    good(s.install())
    pages = [path for path in s.listing() if path.startswith("share/man/man") and
             not os.path.isdir(os.path.join(s.prefix, path))]
    check(len(pages) > 90, "%d pages" % len(pages))
    for page in pages:
        said = run("man", "--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l",
                   os.path.join(s.prefix, page), cwd="/")
        found = said.stdout.splitlines()
        check(said.returncode == 0 and found and found[0].startswith("x T "),
              "%s: %s" % (page, "\n".join(found[:3])))


def units_do_not_hide_the_daemon_from_itself(s):
    for prefix, line in (("/opt/occl", "ProtectHome=yes"), ("/opt/occl", "PrivateTmp=yes"),
                         ("/home" + "/occl", "ProtectHome=read-only"), ("/tmp/occl", "PrivateTmp=no")):
        good(s.install("--destdir", s.folder + "/destination", prefix=prefix))
        unit = good(run("cat", "%s/destination%s/lib/systemd/system/occld.service"
                        % (s.folder, prefix)))
        check("\n%s\n" % line in unit, "%s: no %s" % (prefix, line))


def units_name_pages_that_man_finds(s):
    """Or files, where man does not look."""
    pages = "man:occld(8) man:occld.conf(5)"
    for prefix, line in (("/usr", pages), ("/usr/local", pages),
                         ("/opt/occl", "file:///opt/occl/share/man/man8/occld.8 "
                          "file:///opt/occl/share/man/man5/occld.conf.5")):
        good(s.install("--destdir", s.folder + "/destination", prefix=prefix))
        unit = good(run("cat", "%s/destination%s/lib/systemd/system/occld.service"
                        % (s.folder, prefix)))
        check("\nDocumentation=%s\n" % line in unit, "%s: no %s" % (prefix, line))


def units_are_right(s):
    good(s.install())
    units = s.prefix + "/lib/systemd/system/"
    said = run("systemd-analyze", "verify", units + "occld.service", units + "occld.socket")
    check(said.returncode == 0 and not said.stdout, said.stdout)
    named = re.findall(r"file://(\S+)", good(run("cat", units + "occld.service", units + "occld.socket")))
    check(len(named) == 3 and all(os.path.exists(name) for name in named), str(named))
    # The negative control.
    with open(units + "occld.service", "a", encoding="utf-8") as file:
        file.write("[Service]\nWatchDogSec=1\n")
    said = run("systemd-analyze", "verify", units + "occld.service")
    check("WatchDogSec" in said.stdout, "a wrong key was not found: " + said.stdout)


def allowed_calls():
    """Names that SystemCallFilter=@system-service lets through."""
    names, groups, seen = set(), ["@system-service"], set()
    while groups:
        group = groups.pop()
        if group in seen:
            continue
        seen.add(group)
        for line in good(run("systemd-analyze", "syscall-filter", group)).splitlines():
            word = line.strip()
            if word.startswith("@") and word != group:
                groups.append(word)
            elif re.fullmatch(r"\w+", word):
                names.add(word)
    return names


def the_daemon_needs_no_call_that_its_unit_forbids(s):
    good(s.install())
    unit = good(run("cat", s.prefix + "/lib/systemd/system/occld.service"))
    check("\nSystemCallFilter=@system-service\n" in unit, "the unit has another filter")
    env = {"PKG_CONFIG_PATH": s.prefix + "/lib/pkgconfig"}
    flags = good(run("pkg-config", "--cflags", "--libs", "occl", environment=env)).split()
    good(run("cc", s.prefix + "/share/doc/occl/examples/error_handling.c", *flags,
             "-Wl,-rpath," + s.prefix + "/lib", "-o", s.folder + "/a"))
    trace, sock = s.folder + "/trace", s.folder + "/occld.sock"
    daemon = subprocess.Popen(["strace", "-f", "-qq", "-o", trace, s.prefix + "/bin/occld",
                               "--socket", sock], stderr=subprocess.DEVNULL)
    for _ in range(600):
        if os.path.exists(sock):
            break
        time.sleep(0.05)
    ctl = [s.prefix + "/bin/occlctl", "--socket", sock]
    for command in (["run", "-n", "3", "--on-death=continue", s.folder + "/a"],
                    ["run", "-n", "2", s.prefix + "/bin/occl-perf", "-b", "4", "-e", "1M", "-f", "16",
                     "-n", "2", "all_reduce"],
                    ["why"], ["status"], ["doctor"]):
        run(*ctl, *command)
    os.kill(int(good(run("pgrep", "-P", str(daemon.pid))).split()[0]), signal.SIGTERM)
    daemon.wait()
    with open(trace, encoding="utf-8") as file:
        used = set(re.findall(r"^\d+ +(\w+)\(", file.read(), re.M))
    check("io_uring_setup" in used or "epoll_create1" in used, "no trace: %s" % sorted(used))
    check("memfd_create" in used, "no work in the trace: %s" % sorted(used))
    forbidden = used - allowed_calls()
    check(not forbidden, "forbidden: %s" % sorted(forbidden))


CASES = (
    a_program_builds_with_pkg_config_and_runs,
    programs_know_nothing_of_the_build,
    twice_is_the_same_as_once,
    what_an_earlier_one_had_is_removed,
    uninstalling_leaves_only_what_is_not_ours,
    nothing_is_written_outside,
    a_damaged_manifest_removes_nothing,
    mistakes_are_named,
    man_finds_the_pages,
    each_page_opens_by_its_path,
    units_do_not_hide_the_daemon_from_itself,
    units_name_pages_that_man_finds,
    units_are_right,
    the_daemon_needs_no_call_that_its_unit_forbids,
)


def main():
    passed = True
    for case in CASES:
        scratch = Scratch()
        try:
            case(scratch)
            print("PASS " + case.__name__)
        except Exception as error:  # each case reports, whatever it ran into
            print("  %s" % error)
            print("FAIL " + case.__name__)
            passed = False
        finally:
            scratch.close()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
