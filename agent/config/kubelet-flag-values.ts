/**
 * The kubelet's flags as they are written on a command line, made settings of the configuration. Loaded at the start
 * alone. Forms and separators are those of k8s.io/component-base/cli/flag.
 */
import { resolve } from "node:path";
import type { FlagSetting } from "./flag-settings.ts";
import { type FlagForm, isSetting, KUBELET_FLAGS, type KubeletFlag, type SettingFlag } from "./kubelet-flags.ts";

export interface KubeletFlagValues {
  readonly settings: readonly FlagSetting[];
  /** A sentence for each flag that the kubelet calls deprecated, or that has no effect here. */
  readonly notices: readonly string[];
}

/** @param textsOf all values that a flag was given, in their order; none where it was not given */
export function kubeletFlagValues(textsOf: (name: string) => readonly string[]): KubeletFlagValues {
  const given = KUBELET_FLAGS.map((flag) => ({ flag, texts: textsOf(flag.name) })).filter(
    ({ texts }) => texts.length > 0,
  );
  return {
    settings: given.flatMap(({ flag, texts }) => (isSetting(flag) ? [settingOf(flag, texts)] : [])),
    notices: given.flatMap(({ flag }) => noticeOf(flag) ?? []),
  };
}

function noticeOf(flag: KubeletFlag): string | undefined {
  if (!isSetting(flag)) return `Flag --${flag.name} has no effect: ${flag.instead}`;
  if (flag.isCurrent || flag.isOwn) return undefined;
  return `Flag --${flag.name} has been deprecated: this parameter should be set via the file of --config, as ${flag.field}`;
}

function settingOf({ name, form, field }: SettingFlag, texts: readonly string[]): FlagSetting {
  const shown = texts.map((text) => `--${name}=${text}`).join(" ");
  // Headers hold credentials.
  const setting = { flag: form === "headers" ? `--${name}` : shown, path: field.split(".") };
  const { read, example } = FORMS[form];
  const value = read(texts);
  return value === undefined ? { ...setting, value: undefined, problem: `must be ${example}` } : { ...setting, value };
}

interface Form {
  /** The name of its value in the help. */
  readonly label: string;
  /** Describes a right value, and shows one. */
  readonly example: string;
  /** @returns the value as a file has it; undefined for texts that are none */
  read(texts: readonly string[]): unknown;
}

/** Elements of a list; the kubelet takes an empty element for none. */
const elementsOf = (texts: readonly string[], separator = ","): readonly string[] =>
  texts
    .flatMap((text) => text.split(separator))
    .map((each) => each.trim())
    .filter((each) => each !== "");

/** Splits at the first separator. */
function pairOf(text: string, separator: string): readonly [key: string, value: string] | undefined {
  const at = text.indexOf(separator);
  return at < 1 ? undefined : [text.slice(0, at).trim(), text.slice(at + 1).trim()];
}

function mappingOf(texts: readonly string[], separator: string): Record<string, string> | undefined {
  const pairs = elementsOf(texts).map((each) => pairOf(each, separator));
  return pairs.includes(undefined) ? undefined : Object.fromEntries(pairs.filter((pair) => pair !== undefined));
}

const last = (texts: readonly string[]): string => texts.at(-1) ?? "";

/** Go's strconv.ParseBool. */
function truthOf(text: string): boolean | undefined {
  if (["1", "t", "T", "true", "TRUE", "True"].includes(text)) return true;
  return ["0", "f", "F", "false", "FALSE", "False"].includes(text) ? false : undefined;
}

/** No field has a larger number; a longer text would be rounded. */
const MAX_DIGITS = 15;

function gatesOf(texts: readonly string[]): Record<string, boolean> | undefined {
  const entries = Object.entries(mappingOf(texts, "=") ?? { "": "" }).map(
    ([name, text]) => [name, truthOf(text)] as const,
  );
  return entries.some(([, truth]) => truth === undefined) ? undefined : (Object.fromEntries(entries) as never);
}

function headersOf(texts: readonly string[]): Record<string, string[]> | undefined {
  const headers = new Map<string, string[]>();
  for (const each of elementsOf(texts)) {
    const pair = pairOf(each, ":");
    if (pair === undefined) return undefined;
    headers.set(pair[0], [...(headers.get(pair[0]) ?? []), pair[1]]);
  }
  return Object.fromEntries(headers);
}

/** KEY=VALUE:EFFECT or KEY:EFFECT. */
const TAINT = /^([^=:]+)(?:=([^=:]*))?:([^=:]+)$/;

function taintsOf(texts: readonly string[]): readonly Record<string, string>[] | undefined {
  const taints = elementsOf(texts).map((each) => TAINT.exec(each));
  if (taints.includes(null)) return undefined;
  return taints.map((match) => {
    const [, key = "", value, effect = ""] = match ?? [];
    return { key, ...(value === undefined ? {} : { value }), effect };
  });
}

function reservationsOf(texts: readonly string[]): readonly Record<string, unknown>[] | undefined {
  const reservations = elementsOf(texts, ";").map((each) => {
    const [node = "", reserved = ""] = pairOf(each, ":") ?? [];
    const limits = mappingOf([reserved], "=");
    const isGood = /^\d{1,9}$/.test(node) && limits !== undefined && reserved !== "";
    return isGood ? { numaNode: Number(node), limits } : undefined;
  });
  return reservations.includes(undefined) ? undefined : reservations.filter((each) => each !== undefined);
}

const FORMS: Readonly<Record<FlagForm, Form>> = {
  text: { label: "TEXT", example: "a text", read: last },
  path: {
    label: "PATH",
    example: "a path",
    read: (texts) => (last(texts) === "" ? "" : resolve(last(texts))),
  },
  number: {
    label: "N",
    example: "a whole number, such as 10",
    read: (texts) => (new RegExp(`^[-+]?\\d{1,${MAX_DIGITS}}$`).test(last(texts)) ? Number(last(texts)) : undefined),
  },
  // The configuration reads the text itself.
  duration: { label: "DURATION", example: "a duration, such as 20s", read: last },
  switch: { label: "true|false", example: "true or false", read: (texts) => truthOf(last(texts)) },
  list: { label: "A,B", example: "a list, such as a,b", read: elementsOf },
  pairs: {
    label: "KEY=VALUE,...",
    example: "KEY=VALUE pairs, such as memory=100Mi,cpu=200m",
    read: (texts) => mappingOf(texts, "="),
  },
  thresholds: {
    label: "SIGNAL<VALUE,...",
    example: "SIGNAL<VALUE thresholds, such as memory.available<100Mi,nodefs.available<10%",
    read: (texts) => mappingOf(texts, "<"),
  },
  gates: {
    label: "GATE=true|false,...",
    example: "GATE=true or GATE=false, such as MemoryQoS=false",
    read: gatesOf,
  },
  headers: { label: "NAME:VALUE,...", example: "NAME:VALUE headers, such as Accept:text/yaml", read: headersOf },
  taints: {
    label: "KEY=VALUE:EFFECT,...",
    example: "KEY=VALUE:EFFECT taints, such as dedicated=camera:NoSchedule",
    read: taintsOf,
  },
  reservations: {
    label: "NODE:KEY=VALUE,...",
    example: "NODE:KEY=VALUE reservations, such as 0:memory=1Gi;1:memory=2Gi",
    read: reservationsOf,
  },
};

export const labelOf = (form: FlagForm): string => FORMS[form].label;
