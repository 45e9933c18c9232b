/** The name of a node, by the rule that one file has for many boards. */
import { nearestName } from "@picolet/protocol/kubernetes/nearest-name.ts";
import type { BoardFacts } from "./board-facts.ts";

/** Every board with a network card has it. */
export const DEFAULT_NAME_RULE = "picolet-{mac:6}";
const NUMBERS = ["serial", "mac"] as const;
const PLACEHOLDER = /\{([^{}]*)\}/g;

export type NameByRule =
  | { readonly ok: true; readonly name: string }
  | { readonly ok: false; readonly problem: string };

/** @param rule `serial`, `mac`, or a pattern: `edge-{serial:8}` */
export function nameByRule(rule: string, { serial, mac }: Pick<BoardFacts, "serial" | "mac">): NameByRule {
  const pattern = (NUMBERS as readonly string[]).includes(rule) ? `{${rule}}` : rule;
  const values = { serial: serial?.replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-+|-+$/g, ""), mac };
  let problem: string | undefined;
  const name = pattern.replaceAll(PLACEHOLDER, (whole, inner: string) => {
    const [number = "", count, more] = inner.split(":");
    const known = NUMBERS.find((each) => each === number);
    const digits = count === undefined ? 0 : Number(count);
    if (known === undefined) {
      const nearest = nearestName(number, NUMBERS);
      problem ??= `${whole} is not known${nearest === undefined ? ": write {serial}, {mac}, {serial:8} or {mac:6}" : `, did you mean {${nearest}}?`}`;
    } else if (more !== undefined || (count !== undefined && !(/^\d{1,2}$/.test(count) && digits >= 1)))
      problem ??= `${whole} must be {${known}}, or {${known}:6} for its last 6 characters`;
    else if (values[known] === undefined || values[known] === "") {
      const [other] = NUMBERS.filter((each) => each !== known);
      problem ??= `this board has no ${known === "mac" ? "network card" : "serial number"}: use {${other}}, or node.name`;
    } else return values[known].slice(digits === 0 ? 0 : -digits).replace(/^-+/, "");
    return "";
  });
  if (problem !== undefined) return { ok: false, problem };
  if (!pattern.includes("{"))
    return {
      ok: false,
      problem: "would give every board the same name: write node.name, or use {serial:8} or {mac:6}",
    };
  return { ok: true, name };
}
