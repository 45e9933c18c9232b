/** Validates `wasm.registries`, `wasm.proxy` and `wasm.http`. */
import type { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import type { Configuration } from "./configuration-defaults.ts";

const MAX_REGISTRIES = 64;
/** Each is asked before the registry itself, and may take half a minute not to answer. */
const MAX_MIRRORS = 8;

const HOST = /^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::\d{1,5})?$/;

export function validateProxy({ wasm }: Configuration, problems: FieldProblems): void {
  for (const name of ["httpProxy", "httpsProxy"] as const) {
    const text = wasm.proxy[name] ?? "";
    if (text !== "" && !isProxy(text)) {
      const why = 'must be an http or https URL without a path: "http://proxy.example:3128"';
      problems.invalid(`wasm.proxy.${name}`, withoutUser(text), why);
    }
  }
}

function isProxy(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url !== undefined && /^https?:$/.test(url.protocol) && `${url.pathname}${url.search}${url.hash}` === "/";
}

/** Hides the user and password of a URL. */
const withoutUser = (text: string): string => text.replace(/\/\/[^/]*@/, "//***@");

/**
 * Checks the path only. The file is read when the agent starts and with each container that needs it: it may be written
 * later.
 */
export function validateHttp({ wasm }: Configuration, problems: FieldProblems): void {
  const { caFile = "" } = wasm.http;
  if (caFile !== "" && !caFile.startsWith("/")) {
    problems.invalid("wasm.http.caFile", caFile, "must be an absolute path");
  }
}

export function validateRegistries({ wasm }: Configuration, problems: FieldProblems): void {
  const { registries } = wasm;
  const path = "wasm.registries";
  if (registries.length > MAX_REGISTRIES) problems.tooMany(path, registries.length, MAX_REGISTRIES);
  const hosts = registries.map(({ host }) => host);
  registries.forEach(({ host, insecure = false, caFile = "", mirrors = [] }, index) => {
    const at = `${path}[${index}]`;
    if (!HOST.test(host) || !URL.canParse(`https://${host}`)) {
      problems.invalid(`${at}.host`, host, 'must be a host as images name it, with its port: "registry.example:5000"');
    } else if (hosts.indexOf(host) < index) problems.duplicate(`${at}.host`, host);
    if (caFile !== "" && !caFile.startsWith("/")) problems.invalid(`${at}.caFile`, caFile, "must be an absolute path");
    if (caFile !== "" && insecure) problems.forbidden(`${at}.caFile`, "may not be specified together with insecure");
    if (mirrors.length > MAX_MIRRORS) problems.tooMany(`${at}.mirrors`, mirrors.length, MAX_MIRRORS);
    mirrors.forEach((mirror, number) => {
      const problem = mirrorProblem(mirror);
      if (problem !== undefined) problems.invalid(`${at}.mirrors[${number}]`, mirror, problem);
    });
  });
}

function mirrorProblem(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol))
    return 'must be a URL such as "https://mirror.example:5000"';
  if (url.username !== "" || url.password !== "") return "must hold no user and no password";
  return url.search === "" && url.hash === "" ? undefined : "must have neither a query nor a fragment";
}
