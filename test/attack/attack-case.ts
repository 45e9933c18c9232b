/** One attack, and the run of many: each file of cases has a hub of its own. */
import { describeError } from "@picolet/protocol/errors.ts";
import { AttackGround } from "./attack-ground.ts";
import { Bystander } from "./bystander.ts";

export type Attacker = "board" | "join token" | "service account" | "network" | "thief";

export interface AttackCase {
  /** The attack, as a sentence. */
  readonly name: string;
  readonly attacker: Attacker;
  /** True when `npm test` runs it too. */
  readonly inTest: boolean;
  /** Milliseconds another client may wait at most meanwhile; undefined: the case is no freeze. */
  readonly maxWaitMs?: number;
  /** Throws when the attack has succeeded. */
  run(ground: AttackGround): Promise<void>;
}

export interface AttackFile {
  readonly cases: readonly AttackCase[];
  /** Flags of this file's hub. */
  readonly hubFlags?: readonly string[];
}

export interface AttackOutcome {
  readonly name: string;
  /** Empty: the attack failed, as it should. */
  readonly problem: string;
  /** Longest wait of a bystander; undefined: not measured. */
  readonly waitMs: number | undefined;
}

/** Runs the cases one after the other against a hub of their own. @param judgesTime whether `maxWaitMs` counts */
export async function runAttacks(
  { cases, hubFlags = [] }: AttackFile,
  { judgesTime, onOutcome }: { readonly judgesTime: boolean; readonly onOutcome: (outcome: AttackOutcome) => void },
): Promise<void> {
  if (cases.length === 0) return;
  await using ground = await AttackGround.start(hubFlags);
  for (const each of cases) onOutcome(await runCase(each, ground, judgesTime));
}

async function runCase(attack: AttackCase, ground: AttackGround, judgesTime: boolean): Promise<AttackOutcome> {
  const { name, maxWaitMs } = attack;
  const bystander = judgesTime && maxWaitMs !== undefined ? await Bystander.start(ground.bystander()) : undefined;
  let problem = "";
  try {
    await attack.run(ground);
  } catch (error) {
    problem = error instanceof Error ? (error.stack ?? error.message) : describeError(error);
  }
  const waitMs = await bystander?.end();
  if (problem === "" && waitMs !== undefined && maxWaitMs !== undefined && waitMs > maxWaitMs) {
    problem = `another client waited ${Math.round(waitMs)} ms; ${maxWaitMs} are allowed`;
  }
  return { name, problem, waitMs };
}
