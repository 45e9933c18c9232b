import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { resetToFactory } from "./factory-reset.ts";
import { systemctl } from "./systemctl.ts";

const exists = (path: string): boolean => path === "/usr/lib/systemd/system/picolet-factory-reset.service";

/** Records what systemd is asked for, and fails at the verb `failing`. */
function recorder(failing?: string) {
  const asked: string[] = [];
  const record = async (args: readonly string[]): Promise<void> => {
    asked.push(args.join(" "));
    if (args[0] === failing) throw new PicoletError("failed", "systemctl ends with 1");
  };
  return { asked, record };
}

test("the next boot is asked to empty the board before it is restarted", async () => {
  const { asked, record } = recorder();
  await resetToFactory({ systemctl: record, exists });
  assert.deepEqual(asked, ["start picolet-factory-reset.service", "reboot"]);
});

test("a board whose partition cannot be written is not restarted", async () => {
  const { asked, record } = recorder("start");
  await assert.rejects(resetToFactory({ systemctl: record, exists }), /systemctl ends with 1/);
  assert.equal(asked.length, 1);
});

test("a restart that fails names what the next start does", async () => {
  const { record } = recorder("reboot");
  await assert.rejects(resetToFactory({ systemctl: record, exists }), /forgets all at its next start/);
});

test("a board without the image is refused", async () => {
  const { asked, record } = recorder();
  const refused = resetToFactory({ systemctl: record, exists: () => false });
  await assert.rejects(refused, (error) => isPicoletError(error, "conflict"));
  assert.deepEqual(asked, []);
});

test("systemctl's exit code is an error", async () => {
  await assert.rejects(systemctl(["no-such-verb"], {}), /systemctl no-such-verb ends with|cannot run systemctl/);
});
