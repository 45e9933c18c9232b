"""What of systemd's service manager the slices of pods need, on the message bus that DBUS_SYSTEM_BUS_ADDRESS names.

Writes what happens, one a line: `ready`, `start NAME {properties}`, `set NAME {properties}`, `run NAME`, `stop NAME`. Tells that a job
is over before it answers the call that made it, which systemd may do as well. Units whose name has `fail` in it fail. The first job of
one with `slow` in it is not over before a second start of the unit, which gets the same job, has been answered.
"""
import json
import sys

import dbus
import dbus.mainloop.glib
import dbus.service
from gi.repository import GLib

MANAGER = "org.freedesktop.systemd1.Manager"


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def plain(value):
    if isinstance(value, dbus.Boolean):
        return bool(value)
    if isinstance(value, dbus.Array):
        return [plain(each) for each in value]
    # JSON of other languages holds no whole numbers that large.
    return f"{type(value).__name__} {value}" if isinstance(value, int) else str(value)


class NoSuchUnit(dbus.DBusException):
    _dbus_error_name = "org.freedesktop.systemd1.NoSuchUnit"


class UnitExists(dbus.DBusException):
    _dbus_error_name = "org.freedesktop.systemd1.UnitExists"


class Manager(dbus.service.Object):
    def __init__(self, bus):
        self.units = set()
        self.jobs = 0
        self.slow = {}
        super().__init__(dbus.service.BusName("org.freedesktop.systemd1", bus), "/org/freedesktop/systemd1")

    @dbus.service.signal(MANAGER, signature="uoss")
    def JobRemoved(self, number, job, unit, result):
        pass

    def job(self, unit):
        if unit in self.slow:
            number, job = self.slow.pop(unit)
            GLib.idle_add(lambda: self.JobRemoved(number, job, unit, "done"))
            return job
        self.jobs += 1
        job = dbus.ObjectPath(f"/org/freedesktop/systemd1/job/{self.jobs}")
        if "slow" in unit:
            self.slow[str(unit)] = (self.jobs, job)
        else:
            self.JobRemoved(self.jobs, job, unit, "failed" if "fail" in unit else "done")
        return job

    @dbus.service.method(MANAGER, in_signature="ssa(sv)a(sa(sv))", out_signature="o")
    def StartTransientUnit(self, unit, _mode, properties, _auxiliary):
        if unit in self.units:
            raise UnitExists(f"Unit {unit} already exists.")
        self.units.add(str(unit))
        say(f"start {unit} {json.dumps({str(name): plain(value) for name, value in properties})}")
        return self.job(unit)

    @dbus.service.method(MANAGER, in_signature="sba(sv)", out_signature="")
    def SetUnitProperties(self, unit, _runtime, properties):
        if unit not in self.units:
            raise NoSuchUnit(f"Unit {unit} not found.")
        say(f"set {unit} {json.dumps({str(name): plain(value) for name, value in properties})}")

    @dbus.service.method(MANAGER, in_signature="ss", out_signature="o")
    def StartUnit(self, unit, _mode):
        say(f"run {unit}")
        return self.job(unit)

    @dbus.service.method(MANAGER, in_signature="ss", out_signature="o")
    def StopUnit(self, unit, _mode):
        if unit not in self.units:
            raise NoSuchUnit(f"Unit {unit} not loaded.")
        self.units.remove(str(unit))
        say(f"stop {unit}")
        return self.job(unit)


dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
manager = Manager(dbus.SystemBus())
say("ready")
GLib.MainLoop().run()
