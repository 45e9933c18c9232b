/**
 * Opens one device, gives it to the runner that is entitled to it, and ends. The request is the first line of standard
 * input, the answers are lines of standard output. The end of the input means that no one waits for the device any
 * more.
 *
 * Each device gets a process of its own, because Node can neither pass on nor lock an open file, the library that can
 * takes 1.8 MiB, and the runner has no rights on devices.
 */
import { chmodSync, readSync, rmSync, writeSync } from "node:fs";
import { basename, dirname } from "node:path";
import { describeError } from "@picolet/protocol/errors.ts";
import type { DeviceKind } from "@picolet/runtime-contract/board-services.ts";
import { gpioOpener } from "../shared/board/gpio/opener.ts";
import { i2cOpener } from "../shared/board/i2c/opener.ts";
import { serialOpener } from "../shared/board/serial/opener.ts";
import { DescriptorListener } from "../shared/devices/descriptors.ts";
import type { Opener } from "../shared/devices/opening/node-devices.ts";
import { SystemCalls } from "../shared/devices/system-calls.ts";
import { type DeviceAnswer, DeviceRefusal, type DeviceRequest } from "../shared/messages/device-request.ts";

const OPENERS: Readonly<Record<DeviceKind, Opener>> = { serial: serialOpener, gpio: gpioOpener, i2c: i2cOpener };

const INPUT = 0;
const OUTPUT = 1;
const MAX_REQUEST_BYTES = 65_536;
/** Runners have the rights of their pods. */
const SOCKET_MODE = 0o666;

const answer = (message: DeviceAnswer): void => void writeSync(OUTPUT, `${JSON.stringify(message)}\n`);

function requestLine(): string {
  let text = "";
  const chunk = Buffer.alloc(MAX_REQUEST_BYTES);
  while (!text.includes("\n") && text.length < MAX_REQUEST_BYTES) {
    const length = readSync(INPUT, chunk);
    if (length === 0) process.exit(1);
    text += chunk.toString("utf8", 0, length);
  }
  return text;
}

function main({ addonPath, socketPath, secret, kind, target, lockDirectory }: DeviceRequest): void {
  const calls = new SystemCalls(addonPath);
  const opened = OPENERS[kind].open(calls, target, lockDirectory);
  if ("value" in opened) {
    answer({ kind: "value", value: opened.value });
    return;
  }
  // A socket's name is short.
  process.chdir(dirname(socketPath));
  const name = basename(socketPath);
  rmSync(name, { force: true });
  using listener = new DescriptorListener(calls, name);
  try {
    chmodSync(name, SOCKET_MODE);
    answer({ kind: "open" });
    answer({ kind: "over", given: listener.give(secret, opened.descriptors, INPUT) });
  } finally {
    rmSync(name, { force: true });
  }
}

try {
  main(JSON.parse(requestLine()) as DeviceRequest);
} catch (error) {
  const { kind, message } =
    error instanceof DeviceRefusal ? error : { kind: "failed" as const, message: describeError(error) };
  answer({ kind: "refused", reason: kind, message });
}
