/** `edgectl join`: writes the hub into the agent's configuration, has it checked, and starts the agent with it. */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, realpathSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { describeError, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { StatusReport } from "@picolet/protocol/local-api/status.ts";
import { millis, NEVER, seconds } from "@picolet/protocol/ports.ts";
import type { Context } from "../context/context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY, usageError } from "../context/exit-codes.ts";
import { readInput } from "../context/input-file.ts";
import { printableLine } from "../context/text-layout.ts";
import { editableConfiguration, hubAddress } from "./hub-configuration.ts";
import { CONFIG, JOIN_WAIT } from "./node.ts";

/** A token has 23 characters; a line feed may follow. */
const MAX_TOKEN_BYTES = 256;
const TOKEN_FILE = "join-token";
const UNIT = "picolet.service";
const STATUS_INTERVAL = millis(500);
/** systemd starts the agent within seconds; a slow card takes longer. */
const SYSTEMCTL_LIMIT = seconds(300);

interface Hub {
  readonly server: string;
  readonly token: string;
  readonly caHash: string | undefined;
  readonly caFile: string | undefined;
}

export async function runJoin(context: Context, input: Arguments): Promise<number> {
  const hub = await hubOf(context, input);
  const path = resolve(context.workingDirectory, input.value(CONFIG));
  const text = await joinedConfiguration(path, hub, {
    nodeName: input.text("node-name"),
    proxy: input.text("proxy"),
    replace: input.flag("replace"),
  });
  replaceConfiguration(path, text, hub.token);
  await context.terminal.write(`${path}: the hub is ${hub.server}\n`);
  if (input.flag("no-start")) return EXIT_HEALTHY;
  if (!existsSync("/run/systemd/system")) {
    await context.terminal.write("start the agent again, then `edgectl status` shows the hub\n");
    return EXIT_HEALTHY;
  }
  systemctl("enable", UNIT);
  systemctl("restart", UNIT);
  return await untilJoined(context, hub.server, input.value(JOIN_WAIT));
}

async function hubOf(context: Context, input: Arguments): Promise<Hub> {
  const [caHash, caFile] = [input.text("ca-hash"), input.text("ca-file")];
  const [given, tokenFile] = [input.text("token"), input.text("token-file")];
  if ((given === undefined) === (tokenFile === undefined))
    throw usageError("give the token by --token or --token-file: `picolet-hub token create` makes one");
  if ((caHash === undefined) === (caFile === undefined))
    throw usageError("give the hub's CA by --ca-hash or --ca-file: `picolet-hub ca hash` prints the hash");
  const token =
    given ?? (await readInput(context, tokenFile ?? "", MAX_TOKEN_BYTES, "a token")).toString("utf8").trim();
  return {
    server: serverUrl(input.positionals[0] ?? ""),
    token,
    caHash,
    caFile: caFile === undefined ? undefined : resolve(context.workingDirectory, caFile),
  };
}

function serverUrl(text: string): string {
  try {
    return hubAddress(text);
  } catch (error) {
    throw usageError(describeError(error));
  }
}

interface JoinOptions {
  readonly nodeName: string | undefined;
  /** Undefined: the one that the configuration has stays. */
  readonly proxy: string | undefined;
  readonly replace: boolean;
}

/** @returns the configuration with the hub in it; comments and all other fields stay */
async function joinedConfiguration(
  path: string,
  { server, caHash, caFile }: Hub,
  { nodeName, proxy, replace }: JoinOptions,
): Promise<string> {
  const { isMap } = await import("yaml");
  const document = editableConfiguration(readIfPresent(path), path);
  const present: unknown = document.getIn(["hub", "server"]);
  if (!replace && typeof present === "string" && present !== server)
    throw new PicoletError(
      "conflict",
      `this board has the hub ${present} in ${path}: --replace takes it to ${server}, and ends the pods it had`,
    );
  if (!isMap(document.get("hub"))) document.set("hub", document.createNode({}));
  for (const field of ["token", "tokenFile", "caHash", "caFile"]) document.deleteIn(["hub", field]);
  document.setIn(["hub", "server"], server);
  document.setIn(["hub", "tokenFile"], join(dirname(path), TOKEN_FILE));
  if (caHash !== undefined) document.setIn(["hub", "caHash"], caHash);
  if (caFile !== undefined) document.setIn(["hub", "caFile"], caFile);
  if (proxy !== undefined) document.setIn(["hub", "proxy"], proxy);
  if (nodeName !== undefined) document.set("nodeName", nodeName);
  return document.toString();
}

function readIfPresent(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return "";
    throw new PicoletError("failed", `cannot read ${path}`, { cause: error });
  }
}

/** Replaces configuration and token, but keeps the old ones when the agent finds a fault in the new configuration. */
function replaceConfiguration(path: string, text: string, token: string): void {
  const next = `${path}.new`;
  const tokenFile = join(dirname(path), TOKEN_FILE);
  try {
    // One that only root may read may hold secrets. A file of that name that was left would keep its own mode.
    const mode = (statSync(path, { throwIfNoEntry: false })?.mode ?? 0o644) & 0o777;
    rmSync(next, { force: true });
    writeFileSync(next, text, { mode });
    const agent = join(dirname(realpathSync(process.argv[1] ?? "")), "picolet.cjs");
    const check = spawnSync(process.execPath, [agent, "--config", next, "--check-config"], { encoding: "utf8" });
    if (check.status !== 0)
      throw new PicoletError(
        "invalid",
        `the configuration would be wrong:\n${check.stderr.replaceAll(next, path).trim()}`,
      );
    rmSync(`${tokenFile}.new`, { force: true });
    writeFileSync(`${tokenFile}.new`, `${token}\n`, { mode: 0o600 });
    renameSync(`${tokenFile}.new`, tokenFile);
    renameSync(next, path);
  } catch (error) {
    rmSync(next, { force: true });
    if (isPicoletError(error)) throw error;
    throw new PicoletError("failed", `cannot write ${path}`, { cause: error });
  }
}

function systemctl(...args: readonly string[]): void {
  const { status, stderr, error } = spawnSync("systemctl", args, { encoding: "utf8", timeout: SYSTEMCTL_LIMIT });
  if (status === 0) return;
  const why = error === undefined ? stderr.trim() : describeError(error);
  throw new PicoletError(
    "failed",
    `systemctl ${args.join(" ")} failed: ${why}; journalctl -u ${UNIT} has the agent's log`,
  );
}

/** Asks the agent until the hub has taken the board or refused it. */
async function untilJoined(context: Context, server: string, wait: number): Promise<number> {
  const deadline = context.now() + wait;
  let problem = "the agent does not answer yet";
  while (context.now() < deadline) {
    const status = await context.client.get<StatusReport>("/v1/status").catch((error: unknown) => describeError(error));
    if (typeof status === "string") problem = status;
    else {
      const { tunnel } = status;
      if (tunnel.state === "connected") {
        await context.terminal.write(`node/${printableLine(status.node)} has joined\n`);
        return EXIT_HEALTHY;
      }
      problem = tunnel.problem ?? "it has not answered yet";
      if (tunnel.refused === true) break;
    }
    await context.sleep(STATUS_INTERVAL, NEVER);
  }
  context.terminal.writeError(
    `edgectl: ${server} has not taken this board: ${printableLine(problem)}; the agent goes on trying, \`edgectl status\` shows it\n`,
  );
  return EXIT_DEGRADED;
}
