# The end of the configuration of sushy-emulator (tests/qemu/src/redfish): its fake driver asks the lab, which has the machines. By
# itself it only pretends: power comes and goes at random seconds later, GracefulShutdown is the same as ForceOff, a machine that
# turns itself off stays On, and how often an override of the boot device counts is dropped.
import json
import socket

import flask
from sushy_tools import error
from sushy_tools.emulator.resources.systems import fakedriver


class Lab(fakedriver.FakeDriver):
    def _ask(self, identity, **what):
        with socket.socket(socket.AF_UNIX) as lab:
            lab.settimeout(30)
            lab.connect(self._config["LAB_SOCKET"])
            lab.sendall(json.dumps({"system": self.uuid(identity), **what}).encode() + b"\n")
            answer = json.loads(lab.makefile().readline())
        if "refused" in answer:
            raise error.BadRequest(answer["refused"])
        return answer

    def get_power_state(self, identity):
        return self._ask(identity)["power"]

    def set_power_state(self, identity, state):
        self._ask(identity, reset=state)

    def get_boot_device(self, identity):
        return self._ask(identity)["boot"]

    def set_boot_device(self, identity, boot_source):
        boot = flask.request.json["Boot"]
        self._ask(identity, boot=boot_source, enabled=boot.get("BootSourceOverrideEnabled", "Continuous"))

    def set_boot_image(self, identity, device, boot_image=None, write_protected=True):
        self._ask(identity, medium=boot_image)


fakedriver.FakeDriver = Lab
