"""What of logind and systemd a node's shutdown needs, on the message bus that DBUS_SYSTEM_BUS_ADDRESS names.

Reads commands, one a line: `shutdown`, `cancel`. Writes what happens, one a line: `ready`, `inhibit WHAT WHO MODE`,
`released`, `reload`. Arguments: the folder of logind's drop-in files, InhibitDelayMaxSec to begin with.
"""
import glob
import os
import re
import sys

import dbus
import dbus.mainloop.glib
import dbus.service
from gi.repository import GLib

MANAGER = "org.freedesktop.login1.Manager"
PROPERTIES = "org.freedesktop.DBus.Properties"


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Logind(dbus.service.Object):
    def __init__(self, bus, folder, seconds):
        self.folder = folder
        self.seconds = seconds
        self.preparing = False
        super().__init__(dbus.service.BusName("org.freedesktop.login1", bus), "/org/freedesktop/login1")

    @dbus.service.method(PROPERTIES, in_signature="ss", out_signature="v")
    def Get(self, _interface, name):
        if name == "InhibitDelayMaxUSec":
            return dbus.UInt64(self.seconds * 1000000)
        if name == "PreparingForShutdown":
            return dbus.Boolean(self.preparing)
        raise dbus.DBusException("no such property", name="org.freedesktop.DBus.Error.UnknownProperty")

    @dbus.service.method(MANAGER, in_signature="ssss", out_signature="h")
    def Inhibit(self, what, who, _why, mode):
        ours, theirs = os.pipe()
        GLib.io_add_watch(ours, GLib.PRIORITY_DEFAULT, GLib.IO_HUP, self.released, ours)
        say(f"inhibit {what} {who} {mode}")
        lock = dbus.types.UnixFd(theirs)
        os.close(theirs)
        return lock

    def released(self, _source, _condition, ours):
        os.close(ours)
        say("released")
        return False

    @dbus.service.signal(MANAGER, signature="b")
    def PrepareForShutdown(self, begins):
        self.preparing = bool(begins)

    def reload(self):
        for path in sorted(glob.glob(os.path.join(self.folder, "*.conf"))):
            with open(path) as file:
                found = re.search(r"^InhibitDelayMaxSec=(\d+)$", file.read(), re.MULTILINE)
            if found:
                self.seconds = int(found.group(1))
        say("reload")


class Systemd(dbus.service.Object):
    def __init__(self, bus, logind):
        self.logind = logind
        super().__init__(dbus.service.BusName("org.freedesktop.systemd1", bus), "/org/freedesktop/systemd1")

    @dbus.service.method("org.freedesktop.systemd1.Manager", in_signature="ssi", out_signature="")
    def KillUnit(self, unit, _who, signal):
        if unit == "systemd-logind.service" and signal == 1:
            GLib.timeout_add(50, self.logind.reload)


def main():
    dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
    bus = dbus.SystemBus()
    logind = Logind(bus, sys.argv[1], int(sys.argv[2]))
    Systemd(bus, logind)
    loop = GLib.MainLoop()

    def command(source, _condition):
        line = source.readline()
        if line == "":
            loop.quit()
            return False
        logind.PrepareForShutdown(line.strip() == "shutdown")
        return True

    GLib.io_add_watch(sys.stdin, GLib.PRIORITY_DEFAULT, GLib.IO_IN | GLib.IO_HUP, command)
    say("ready")
    loop.run()


main()
