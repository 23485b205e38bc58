"""The escape suite: programs that try to reach what a sandbox denies.

An attempt prints ``ESCAPED`` when it succeeds; an exception, an exit or a kill means that it was
held. Those that could hurt a machine if a level did not hold (`Attempt.harmless`) run as written
only at level *strict*, which has a process namespace of its own; weaker levels get the harmless
variant.

The programs find these global variables: ``private_file`` and ``public_file`` (a secret that only
the user, or everybody, may read), ``open_folder`` (everybody may write to it), ``port`` (a
listening TCP port), ``socket_path`` and ``abstract_socket`` (listening Unix sockets),
``client_pid``, ``server_pid`` and ``other_folder`` (the folder of another program that runs now).
"""

from __future__ import annotations

from typing import NamedTuple

ALL = ("strict", "confined", "limited")
LANDLOCK = ("strict", "confined")
PREAMBLE = """
import ctypes, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
uid_before = os.getuid()
numbers = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
def syscall(numbers_of_both, *arguments):
    result = libc.syscall(numbers_of_both[numbers], *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result
def read(path):
    with open(path) as file:
        if file.read():
            print("ESCAPED")
def write(path):
    with open(path, "w") as file:
        file.write("x")
    print("ESCAPED")
"""


class Attempt(NamedTuple):
    """One attempt.

    Attributes:
        name: what it tries.
        code: the program, after `PREAMBLE`.
        levels: the levels that promise to hold it.
        harmless: the variant for levels without a process namespace; ``""``: the same.
    """

    name: str
    code: str
    levels: tuple[str, ...] = ALL
    harmless: str = ""

    @property
    def starts_processes(self) -> bool:
        """Whether it tries what a sandbox with ``programs=True`` allows on purpose."""
        words = ("fork", "exec", "spawn", "system(", "subprocess", "clone")
        return any(word in self.name + self.code for word in words)


def guarded_by(*codes: str) -> str:
    """Return a program that tries each piece, whatever the others raise."""
    return "\n".join(
        f"try:\n    {code}\nexcept Exception as error:\n    print(type(error).__name__)"
        for code in codes
    )


FILES = [
    Attempt("read /etc/shadow", "read('/etc/shadow')"),
    Attempt("read the user's private file", "read(private_file)"),
    Attempt("read a file that everybody may read", "read(public_file)", LANDLOCK),
    Attempt("read /etc/passwd", "read('/etc/passwd')", LANDLOCK),
    Attempt("list the root folder", "os.listdir('/') and print('ESCAPED')", LANDLOCK),
    Attempt(
        "list the home folder",
        guarded_by(
            "os.listdir('/root') and print('ESCAPED')", "os.listdir('/home') and print('ESCAPED')"
        ),
        LANDLOCK,
    ),
    Attempt("read a file in another program's folder", "read(other_folder + '/secret')"),
    Attempt("list another program's folder", "os.listdir(other_folder) and print('ESCAPED')"),
    Attempt("write to another program's folder", "write(other_folder + '/new')"),
    Attempt("leave the folder by '..'", "os.listdir('../..') and print('ESCAPED')"),
    Attempt("leave the folder by many '..'", "read('../' * 40 + private_file.lstrip('/'))"),
    Attempt(
        "write to a folder that everybody may write to", "write(open_folder + '/new')", LANDLOCK
    ),
    Attempt("write to /tmp", "write('/tmp/gem-core-escape')", LANDLOCK),
    Attempt("write to /dev/shm", "write('/dev/shm/gem-core-escape')", LANDLOCK),
    Attempt("change Python's library", "write(os.path.dirname(os.__file__) + '/gem_escape.py')"),
    Attempt("truncate the user's file", "os.truncate(private_file, 0); print('ESCAPED')"),
    Attempt(
        "change the rights of the user's file",
        "import stat\nbefore = os.stat(private_file).st_mode\nos.chmod(private_file, 0o777)\n"
        "if os.stat(private_file).st_mode != before: print('ESCAPED')",
    ),
    Attempt("delete the user's file", "os.unlink(private_file); print('ESCAPED')"),
    Attempt("rename the user's file", "os.rename(private_file, 'mine'); print('ESCAPED')"),
    Attempt("read through a symbolic link", "os.symlink(private_file, 'link'); read('link')"),
    Attempt("read through a hard link", "os.link(private_file, 'link'); read('link')"),
    Attempt(
        "exchange a link while it is read",
        "import threading\n"
        "open('plain', 'w').close()\n"
        "def swap():\n"
        "    for _ in range(2000):\n"
        "        for target in (private_file, 'plain'):\n"
        "            os.symlink(target, 'new')\n"
        "            os.rename('new', 'link')\n"
        "threading.Thread(target=swap, daemon=True).start()\n"
        "for _ in range(2000):\n"
        "    try:\n"
        "        if open('link').read(): print('ESCAPED')\n"
        "    except OSError: pass",
    ),
    Attempt("make a device", "os.mknod('disk', 0o60666, os.makedev(8, 0)); print('ESCAPED')"),
    Attempt("make a pipe with a name", "os.mkfifo('pipe'); print('ESCAPED')"),
    Attempt(
        "make a program that runs as another user",
        "write_to = open('setuid', 'w'); write_to.close(); os.chmod('setuid', 0o6777)\n"
        "if os.stat('setuid').st_mode & 0o6000: print('ESCAPED')",
    ),
    Attempt(
        "read the kernel's log",
        "syscall((103, 116), 3, ctypes.create_string_buffer(4096), 4096); print('ESCAPED')",
    ),
    Attempt("open by a handle", "syscall((304, 265), -100, None, 0); print('ESCAPED')"),
]
PROCESSES = [
    Attempt("start a shell", "if os.system('true') == 0: print('ESCAPED')"),
    Attempt(
        "start a process",
        "import subprocess; subprocess.run(['/bin/true'], check=True); print('ESCAPED')",
    ),
    Attempt("execute a program", "os.execv('/bin/echo', ['echo', 'ESCAPED'])"),
    Attempt(
        "execute a file in memory",
        "made = syscall((319, 279), b'program', 0)\n"
        "os.write(made, open(sys.executable, 'rb').read()); print('ESCAPED')",
    ),
    Attempt("fork", "if os.fork() == 0: os._exit(0)\nprint('ESCAPED')"),
    Attempt(
        "fork without end",
        "count = 0\n"
        "while True:\n"
        "    if os.fork() == 0:\n"
        "        while True: os.fork()\n"
        "    count += 1\n"
        "    if count > 64: print('ESCAPED', flush=True)",
        harmless="if os.fork() == 0: os._exit(0)\nprint('ESCAPED')",
    ),
    Attempt("clone with a system call", "syscall((56, 220), 17, 0, 0, 0, 0)\nprint('ESCAPED')"),
    Attempt(
        "clone with clone3",
        "syscall((435, 435), (ctypes.c_uint64 * 11)(0, 0, 0, 0, 17), 88)\nprint('ESCAPED')",
    ),
    Attempt(
        "start threads without end",
        "import threading\n"
        "threading.stack_size(65536)\n"
        "gate = threading.Event()\n"
        "for number in range(4000):\n"
        "    threading.Thread(target=gate.wait, daemon=True).start()\n"
        "print('ESCAPED')",
        harmless="import threading\n"
        "threading.stack_size(65536)\n"
        "gate = threading.Event()\n"
        "for number in range(1500):\n"
        "    threading.Thread(target=gate.wait, daemon=True).start()\n"
        "print('ESCAPED')",
    ),
    Attempt(
        "kill the server",
        "os.kill(server_pid, 9); print('ESCAPED')",
        harmless="os.kill(server_pid, 0); print('ESCAPED')",
    ),
    Attempt(
        "kill the parent process",
        "os.kill(os.getppid(), 9); print('ESCAPED')",
        harmless="os.kill(os.getppid(), 0); print('ESCAPED')",
    ),
    Attempt(
        "kill every process",
        "os.kill(-1, 9); print('ESCAPED')",
        harmless="os.kill(-1, 0); print('ESCAPED')",
    ),
    Attempt(
        "signal a thread of the server",
        "syscall((234, 131), server_pid, server_pid, 0); print('ESCAPED')",
    ),
    Attempt("signal with a system call", "syscall((62, 129), client_pid, 0); print('ESCAPED')"),
    Attempt("open another process", "syscall((434, 434), client_pid, 0); print('ESCAPED')"),
    Attempt(
        "trace the parent process", "syscall((101, 117), 16, os.getppid(), 0, 0); print('ESCAPED')"
    ),
    Attempt(
        "read another process's memory",
        "syscall((310, 270), client_pid, None, 0, None, 0, 0); print('ESCAPED')",
    ),
    Attempt("read another process's environment", "read(f'/proc/{client_pid}/environ')"),
    Attempt(
        "open another process's descriptors",
        "os.listdir(f'/proc/{client_pid}/fd') and print('ESCAPED')",
    ),
    Attempt(
        "reach another root through /proc",
        "os.listdir(f'/proc/{client_pid}/root/root') and print('ESCAPED')",
    ),
    Attempt("leave the process group", "os.setpgid(0, 0); os.setpgrp(); print('ESCAPED')"),
    Attempt("start a session", "os.setsid(); print('ESCAPED')"),
    Attempt(
        "survive the end: ignore signals and sleep",
        "import signal\n"
        "for number in range(1, 32):\n"
        "    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "time.sleep(60); print('ESCAPED')",
    ),
]
NETWORK = [
    Attempt(
        "connect to the machine's own network",
        "socket.create_connection(('127.0.0.1', port), 1); print('ESCAPED')",
    ),
    Attempt("connect outside", "socket.create_connection(('1.1.1.1', 53), 1); print('ESCAPED')"),
    Attempt(
        "send a datagram",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', port)); "
        "print('ESCAPED')",
    ),
    Attempt("connect over IPv6", "socket.socket(socket.AF_INET6); print('ESCAPED')"),
    Attempt(
        "connect to a Unix socket",
        "peer = socket.socket(socket.AF_UNIX); peer.connect(socket_path); print('ESCAPED')",
    ),
    Attempt(
        "connect to an abstract socket",
        "peer = socket.socket(socket.AF_UNIX); peer.connect(chr(0) + abstract_socket); "
        "print('ESCAPED')",
    ),
    Attempt(
        "open a raw socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print('ESCAPED')"
    ),
    Attempt("open a packet socket", "socket.socket(17, socket.SOCK_RAW); print('ESCAPED')"),
    Attempt(
        "talk to the kernel by netlink", "socket.socket(16, socket.SOCK_RAW); print('ESCAPED')"
    ),
    Attempt(
        "address a datagram from a socket pair",
        "one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "one.sendto(b'x', chr(0) + abstract_socket); print('ESCAPED')",
    ),
    Attempt("listen", "socket.create_server(('127.0.0.1', 0)); print('ESCAPED')"),
]
RIGHTS = [
    Attempt(
        "become the superuser",
        guarded_by("os.setresuid(0, 0, 0)", "os.setreuid(0, 0)", "os.setuid(0)")
        + "\nif os.getuid() != uid_before: print('ESCAPED')",
    ),
    Attempt(
        "have capabilities",
        "data = (ctypes.c_uint32 * 6)()\n"
        "syscall((125, 90), (ctypes.c_uint32 * 2)(0x20080522, 0), data)\n"
        "if any(data): print('ESCAPED')",
    ),
    Attempt("enter a new user namespace", "syscall((272, 97), 0x10000000); print('ESCAPED')"),
    Attempt("enter the server's namespaces", "syscall((308, 268), 3, 0); print('ESCAPED')"),
    Attempt("mount", "if libc.mount(b'tmpfs', b'.', b'tmpfs', 0, None) == 0: print('ESCAPED')"),
    Attempt("change the root folder", "os.chroot('.'); print('ESCAPED')"),
    Attempt("load a kernel program", "syscall((321, 280), 0, None, 0); print('ESCAPED')"),
    Attempt(
        "use io_uring", "syscall((425, 425), 4, ctypes.create_string_buffer(120)); print('ESCAPED')"
    ),
    Attempt("use userfaultfd", "syscall((323, 282), 0); print('ESCAPED')"),
    Attempt("use perf events", "syscall((298, 241), None, 0, -1, -1, 0); print('ESCAPED')"),
    Attempt("use the keyring", "syscall((250, 219), 0, -3, 1); print('ESCAPED')"),
    Attempt(
        "use shared memory of System V", "syscall((29, 194), 0, 4096, 0o1600); print('ESCAPED')"
    ),
    Attempt(
        "put input in a terminal", "import fcntl\nfcntl.ioctl(0, 0x5412, b'x'); print('ESCAPED')"
    ),
    Attempt(
        "send signals by a file's owner",
        "import fcntl\nfcntl.fcntl(1, fcntl.F_SETOWN, server_pid); print('ESCAPED')",
    ),
    Attempt(
        "undo the death with the parent", "if libc.prctl(1, 0, 0, 0, 0) == 0: print('ESCAPED')"
    ),
    Attempt(
        "raise a limit",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40)); "
        "print('ESCAPED')",
    ),
    Attempt(
        "call the kernel by the 32-bit interface",
        "import mmap\n"
        "if numbers: raise OSError('not on this architecture')\n"
        "code = mmap.mmap(-1, 4096, flags=34, prot=7)  # private: shared memory is refused\n"
        "code.write(bytes([0x53, 0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0x5b, 0xc3]))\n"
        "address = ctypes.addressof(ctypes.c_char.from_buffer(code))\n"
        "if ctypes.CFUNCTYPE(ctypes.c_int)(address)() == os.getpid(): print('ESCAPED')",
    ),
    Attempt(
        "call the kernel by the x32 interface",
        "if numbers: raise OSError('not on this architecture')\n"
        "if libc.syscall(0x40000000 | 39) == os.getpid(): print('ESCAPED')",
    ),
]
RESOURCES = [
    Attempt(
        "take memory without end",
        "held = []\nwhile True: held.append(bytearray(1 << 24))\n",
        harmless="held = bytearray(1 << 30); print('ESCAPED')",
    ),
    Attempt(
        "take memory by a map", "import mmap\nmmap.mmap(-1, 1 << 32, flags=34); print('ESCAPED')"
    ),
    Attempt(
        "lock memory",
        "if libc.mlock(ctypes.create_string_buffer(1 << 24), 1 << 24) == 0: print('ESCAPED')",
    ),
    Attempt(
        "write one endless file",
        "with open('big', 'wb') as file:\n    while True: file.write(bytes(1 << 20))",
        harmless="with open('big', 'wb') as file: file.write(bytes(20 << 20))\nprint('ESCAPED')",
    ),
    Attempt(
        "write many files",
        "for number in range(10**6):\n    open(f'f{number}', 'wb').write(bytes(1 << 20))\n"
        "print('ESCAPED')",
        harmless="for number in range(80):\n    open(f'f{number}', 'wb').write(bytes(1 << 20))\n"
        "    time.sleep(0.01)\nprint('ESCAPED')",
    ),
    Attempt(
        "make many empty files",
        "for number in range(10**7): open(f'f{number}', 'wb').close()\nprint('ESCAPED')",
        harmless="for number in range(4000): open(f'f{number}', 'wb').close()\ntime.sleep(1)\n"
        "print('ESCAPED')",
    ),
    Attempt(
        "nest folders without end",
        "for number in range(10**6):\n    os.mkdir('d'); os.chdir('d')\nprint('ESCAPED')",
        harmless="for number in range(3000):\n    os.mkdir('d'); os.chdir('d')\ntime.sleep(1)\n"
        "print('ESCAPED')",
    ),
    Attempt(
        "hold files that it has removed",
        "held = []\n"
        "for number in range(20):\n"
        "    held.append(open('f', 'wb')); held[-1].write(bytes(12 << 20)); held[-1].flush()\n"
        "    os.unlink('f')\n"
        "time.sleep(1); print('ESCAPED')",
    ),
    Attempt(
        "hold files that it has removed and closed",
        "import mmap\n"
        "held = []\n"
        "for number in range(20):\n"
        "    with open('f', 'w+b') as file:\n"
        "        file.write(bytes(12 << 20)); file.flush(); os.unlink('f')\n"
        "        held.append(mmap.mmap(file.fileno(), 4096))\n"
        "    os.closerange(4, 10); os.closerange(12, 64)\n"
        "time.sleep(1); print('ESCAPED')",
    ),
    Attempt(
        "keep shared memory of which only a part is mapped",
        "import mmap\n"
        "for number in range(5):\n"
        "    held = mmap.mmap(-1, 1 << 26); held.write(bytes(1 << 26))\n"
        "    at = ctypes.addressof(ctypes.c_char.from_buffer(held))\n"
        "    libc.munmap(ctypes.c_void_p(at + 4096), ctypes.c_size_t((1 << 26) - 4096))\n"
        "print('ESCAPED')",
    ),
    Attempt(
        "take space beyond the end of a file",
        "file = open('f', 'wb')\n"
        "syscall((285, 47), file.fileno(), 1, ctypes.c_long(0), ctypes.c_long(1 << 26))\n"
        "print('ESCAPED')",
    ),
    Attempt(
        "have open files of its own in a thread",
        "syscall((436, 436), 900, 999, 2)\nprint('ESCAPED')",
    ),
    Attempt("print without end", "while True: print('x' * 10000)"),
    Attempt("compute without end", "while True: pass"),
    Attempt(
        "open descriptors without end", "held = [os.dup(1) for _ in range(1000)]; print('ESCAPED')"
    ),
]
SECRETS = [
    Attempt(
        "read secrets in the environment",
        "if 'GEM_CORE_TEST_SECRET' in os.environ"
        " or b'GEM_CORE_TEST_SECRET' in os.environb: print('ESCAPED')",
    ),
    Attempt(
        "read another call's program on the stack",
        "frame = sys._getframe()\n"
        "while frame is not None:\n"
        "    if any(hasattr(value, 'clients') for value in list(frame.f_locals.values())):\n"
        "        print('ESCAPED')\n"
        "    frame = frame.f_back",
    ),
    Attempt("read the server's first environment", "read(f'/proc/{server_pid}/environ')"),
    Attempt(
        "use inherited descriptors",
        "for number in range(5, 4096):\n"
        "    try: kind = os.fstat(number).st_mode\n"
        "    except OSError: continue\n"
        "    if kind & 0o170000 != 0o040000: print('ESCAPED', number, oct(kind))",
    ),
    Attempt(
        "leave the folder through an inherited folder",
        "for number in range(5, 64):\n"
        "    try:\n"
        "        if os.listdir(os.open('../../../../../../' + "
        "private_file.rpartition('/')[0], os.O_RDONLY, dir_fd=number)): print('ESCAPED')\n"
        "    except OSError: pass",
    ),
    Attempt(
        "read the arguments of another process", "read(f'/proc/{client_pid}/cmdline')", LANDLOCK
    ),
    Attempt("find the trainer's modules", "import gem_core; print('ESCAPED')"),
]
ATTEMPTS = [*FILES, *PROCESSES, *NETWORK, *RIGHTS, *RESOURCES, *SECRETS]
