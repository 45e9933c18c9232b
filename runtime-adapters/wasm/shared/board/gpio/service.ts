/** The agent's service of picolet:board/gpio. */
import { type Plain, type ServicePeer, ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import {
  type DeviceCalls,
  expectMethod,
  grantsOf,
  numberOf,
  type OpenDevice,
  record,
  textOf,
} from "../../devices/service/device-calls.ts";
import { type GpioTarget, LINE_FLAGS, type LineConfig } from "./uapi.ts";

const MISSING = "no-such-line";

export const gpioCalls: DeviceCalls = {
  tags: { missing: MISSING, busy: "busy", unsupported: "unsupported", failed: "io" },
  async call(peer, method, value, open) {
    if (method === "lines") return listLines(peer, open);
    expectMethod(method, "open");
    const { line, ...config } = record(value);
    return openLine(peer, textOf(line), lineConfig(config), open);
  },
};

/** Chips that are missing are left out. */
async function listLines(peer: ServicePeer, open: OpenDevice): Promise<Plain> {
  const found: Plain[] = [];
  for (const { path, lines } of grantsOf(peer, "gpio")) {
    const target: GpioTarget = { path, lines };
    const listed = await open(target).catch(unlessMissing);
    if (listed !== undefined) found.push({ path, lines: listed });
  }
  return found;
}

async function openLine(peer: ServicePeer, line: string, config: LineConfig, open: OpenDevice): Promise<Plain> {
  const chips = grantsOf(peer, "gpio");
  const [, path, number] = /^(.+):(\d{1,4})$/.exec(line) ?? [];
  const chip = chips.find((each) => each.path === path && each.lines.includes(Number(number)));
  const target = (each: (typeof chips)[number], wanted: number | string): GpioTarget => ({
    ...{ path: each.path, lines: each.lines },
    wanted: { line: wanted, config },
  });
  if (chip !== undefined) return open(target(chip, Number(number)));
  // An id that is not granted is looked up nowhere.
  for (const each of line === "" || line.startsWith("/") ? [] : chips) {
    const opened = await open(target(each, line)).catch(unlessMissing);
    if (opened !== undefined) return opened;
  }
  // A name that no granted line has may be the name of another line.
  throw new ServiceRefusal("not-granted");
}

function unlessMissing(error: unknown): undefined {
  if (error instanceof ServiceRefusal && error.tag === MISSING) return undefined;
  throw error;
}

function lineConfig({ flags, debounceMicroseconds, initial }: Readonly<Record<string, Plain | undefined>>): LineConfig {
  const debounce = debounceMicroseconds === undefined ? undefined : numberOf(debounceMicroseconds);
  return { flags: numberOf(flags) & LINE_FLAGS, debounceMicroseconds: debounce, initial: initial === true };
}
