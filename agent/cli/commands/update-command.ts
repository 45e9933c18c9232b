import { resolve } from "node:path";
import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import type {
  UpdateHoldRequest,
  UpdateInstallAnswer,
  UpdateInstallRequest,
  UpdateStatusAnswer,
} from "@picolet/protocol/local-api/status.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { type Context, paintStatus, table } from "../context/context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY } from "../context/exit-codes.ts";
import { machineFormat, printObject } from "../context/objects.ts";
import { printableLine } from "../context/text-layout.ts";
import { HOLD_TIME } from "./update.ts";

const PATH = "/v1/updates";
const CHANGE_TIMEOUT = seconds(30);
/** RAUC and dpkg read the whole of a file; slow cards take minutes. */
const CHECK_TIMEOUT = seconds(1800);

const hasFailed = ({ updates, problems }: UpdateStatusAnswer): boolean =>
  problems !== "" || updates.some(({ state }) => state === "failed" || state === "rolledBack");

export async function runUpdateStatus(context: Context, input: Arguments): Promise<number> {
  const status = await context.client.get<UpdateStatusAnswer>(PATH);
  const format = machineFormat(input);
  await context.terminal.write(format === undefined ? statusText(context, input, status) : printObject(status, format));
  return hasFailed(status) ? EXIT_DEGRADED : EXIT_HEALTHY;
}

function statusText(context: Context, input: Arguments, status: UpdateStatusAnswer): string {
  const { agentVersion, osVersion, slot, updates, holds, problems } = status;
  const system = osVersion === null ? "" : `system ${osVersion} in slot ${slot ?? "?"}, `;
  const messages = updates.filter(({ message }) => message !== "").map(({ kind, message }) => `${kind}: ${message}`);
  const wrong = problems === "" ? [] : [`the Node's annotations: ${problems}`];
  const held = holds.map((hold) => `held by ${hold}`);
  return [
    `${printableLine(`${system}agent ${agentVersion}`)}\n`,
    updates.length === 0
      ? "no update was asked for\n"
      : table(context, input, {
          headers: ["KIND", "STATE", "SINCE", "TARGET"],
          rows: updates.map(({ kind, target, state, since }) => [kind, state, since, target]),
          paint: (cell, column) => (column === 1 ? paintState(context, cell) : cell),
        }),
    ...[...wrong, ...messages, ...held].map((line) => `${printableLine(line)}\n`),
  ].join("");
}

const paintState = (context: Context, state: string): string =>
  state === "good" ? state : paintStatus(context, state);

export async function runUpdateHold(context: Context, input: Arguments): Promise<number> {
  const forMs = input.value(HOLD_TIME);
  const body: UpdateHoldRequest = { reason: input.text("reason") ?? "", forMs: forMs ?? null };
  const text = JSON.stringify(body);
  const { hold } = await context.client.put<UpdateStatusAnswer, never>(`${PATH}/hold`, text, CHANGE_TIMEOUT);
  const until = hold?.until ?? undefined;
  await context.terminal.write(`updates are held ${until === undefined ? "until update release" : `until ${until}`}\n`);
  return EXIT_HEALTHY;
}

export async function runUpdateRelease(context: Context): Promise<number> {
  const { holds } = await context.client.send<UpdateStatusAnswer>("DELETE", `${PATH}/hold`, undefined, CHANGE_TIMEOUT);
  const others = holds.map((hold) => `still held by ${printableLine(hold)}\n`).join("");
  await context.terminal.write(`updates are released\n${others}`);
  return EXIT_HEALTHY;
}

export async function runUpdateFile(context: Context, input: Arguments, check: boolean): Promise<number> {
  const path = resolve(context.workingDirectory, input.positionals[0] ?? "");
  const body: UpdateInstallRequest = { path, check, allowDowngrade: input.flag("allow-downgrade") };
  const answer = await context.client.post<UpdateInstallAnswer>(`${PATH}/install`, body, CHECK_TIMEOUT);
  const { version, state } = answer;
  const name = answer.kind === "os" ? "system" : answer.kind;
  const texts: Readonly<Record<UpdateInstallAnswer["state"], string>> = {
    good: `${name} ${version} can be installed`,
    current: `${name} ${version} is what runs`,
    began: `the update of the ${name} has begun: edgectl update status shows how far it is`,
  };
  await context.terminal.write(`${printableLine(texts[state])}\n`);
  return EXIT_HEALTHY;
}
