/** Finds pods, files and users that keep the board from restarting for an update. */
import { closeSync, constants, openSync, readdirSync, readSync } from "node:fs";
import { join } from "node:path";
import { UPDATE_HOLD_ANNOTATION } from "@picolet/protocol/updates/node-updates.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { OperatorHold } from "./update-files.ts";

/** A pod may mount it, and make a file there while it must not be interrupted. */
export const HOLD_FOLDER = "/run/picolet/update-hold";
/** Bounds what is shown of a reason. */
const MAX_REASON_BYTES = 128;
/** Bounds the files that are read; one is enough to hold. */
const MAX_FILES = 16;

export interface HoldSources {
  readonly pods: readonly AgentPod[];
  readonly operator: OperatorHold | undefined;
  readonly folder: string;
  readonly nowMs: number;
}

/** @returns a text for each: who, and why */
export function updateHolds({ pods, operator, folder, nowMs }: HoldSources): readonly string[] {
  const ofPods = pods.flatMap(({ desired: { pod }, status }) => {
    const reason = pod.metadata.annotations?.[UPDATE_HOLD_ANNOTATION];
    if (reason === undefined || status?.phase !== "Running") return [];
    return [withReason(`pod ${pod.metadata.namespace}/${pod.metadata.name}`, reason)];
  });
  const isHeld = operator !== undefined && (operator.untilMs === undefined || operator.untilMs > nowMs);
  const byOperator = isHeld ? [withReason("edgectl", operator.reason)] : [];
  return [...byOperator, ...ofPods, ...fileHolds(folder)];
}

function fileHolds(folder: string): readonly string[] {
  let names: readonly string[];
  try {
    names = readdirSync(folder);
  } catch {
    return [];
  }
  return names
    .filter((name) => !name.startsWith("."))
    .sort()
    .slice(0, MAX_FILES)
    .map((name) => withReason(`file ${name}`, beginningOf(join(folder, name))));
}

/** A pod wrote it: it may be a pipe or a link. */
function beginningOf(path: string): string {
  let file: number | undefined;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const buffer = Buffer.alloc(MAX_REASON_BYTES);
    return buffer.toString("utf8", 0, readSync(file, buffer, 0, MAX_REASON_BYTES, 0));
  } catch {
    return "";
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

function withReason(who: string, reason: string): string {
  const shown = reason
    .replace(/[^\x20-\x7e]+/g, " ")
    .trim()
    .slice(0, MAX_REASON_BYTES);
  return shown === "" || shown === "true" ? printable(who) : `${printable(who)} (${shown})`;
}

const printable = (text: string): string => text.replace(/[^\x20-\x7e]+/g, " ").slice(0, MAX_REASON_BYTES);
