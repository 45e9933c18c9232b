/** Runs the cases and flows of Pod Security against an API server, and keeps what it answered. */
import { ENFORCED_LEVELS, namespaceOf, POD_CASES } from "./pod-security-cases.ts";
import { FLOWS, type ServerVariant, type Step } from "./pod-security-flows.ts";

export interface ServerAnswer {
  readonly status: number;
  /** The message of a Status; undefined: the request was granted. */
  readonly message?: string;
  readonly warnings?: readonly string[];
}

export type Ask = (step: Step) => Promise<ServerAnswer>;

/** The answer for one pod, and the policies it was under. */
export interface Decision {
  /** The policy's name is `{policy}` in it. */
  readonly answer: string;
  readonly policies: readonly string[];
}

export interface Recording {
  readonly pods: Readonly<Record<string, readonly Decision[]>>;
  readonly flows: Readonly<Record<string, readonly ServerAnswer[]>>;
}

/** Requests under way at one time. */
const PARALLEL = 8;

/** The texts of a `Warning` header, RFC 7234 5.5. */
export const warningsIn = (header: string | null): readonly string[] =>
  [...(header ?? "").matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)].map(([, text = ""]) => text.replace(/\\(.)/g, "$1"));

/** The drawn name of an object with `generateName: made-`. */
const DRAWN_NAME = /\bmade-[a-z0-9]{5}\b/;

/** The answer of a step, made from the server's response. */
export function answerOf(status: number, body: unknown, header: string | null): ServerAnswer {
  const message = ((body ?? {}) as { readonly message?: string }).message?.replace(DRAWN_NAME, "made-xxxxx");
  const warnings = warningsIn(header);
  return {
    status,
    ...(status >= 400 ? { message: message ?? "" } : {}),
    ...(warnings.length > 0 ? { warnings } : {}),
  };
}

const newNamespace = (name: string, labels: object): Step => ({
  method: "POST",
  path: "/api/v1/namespaces",
  body: { apiVersion: "v1", kind: "Namespace", metadata: { name, labels } },
});

/** Each pod, created without being stored, in one namespace for each level and version. */
export async function decidePods(ask: Ask): Promise<Recording["pods"]> {
  const versions = [...new Set(POD_CASES.flatMap((each) => each.versions))];
  for (const level of ENFORCED_LEVELS) {
    for (const version of versions) {
      const labels = {
        "pod-security.kubernetes.io/enforce": level,
        "pod-security.kubernetes.io/enforce-version": version,
      };
      await ask(newNamespace(namespaceOf(`${level}:${version}`), labels));
    }
  }
  const decided: Record<string, readonly Decision[]> = {};
  const queue = POD_CASES[Symbol.iterator]();
  const work = async (): Promise<void> => {
    for (const { name, spec, annotations, versions: own } of queue) {
      const byAnswer = new Map<string, string[]>();
      for (const policy of ENFORCED_LEVELS.flatMap((level) => own.map((version) => `${level}:${version}`))) {
        const path = `/api/v1/namespaces/${namespaceOf(policy)}/pods?dryRun=All`;
        const body = { apiVersion: "v1", kind: "Pod", metadata: { name: "x", annotations }, spec };
        const { status, message } = await ask({ method: "POST", path, body });
        const answer = status < 300 ? "allowed" : `${status} ${(message ?? "").replaceAll(`"${policy}"`, "{policy}")}`;
        byAnswer.set(answer, [...(byAnswer.get(answer) ?? []), policy]);
      }
      decided[name] = [...byAnswer].map(([answer, policies]) => ({ answer, policies }));
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, work));
  return Object.fromEntries(POD_CASES.map(({ name }) => [name, decided[name] ?? []]));
}

/** @param expected to wait for, of runtime classes and the like; made by the caller */
export async function runFlows(variant: ServerVariant, ask: Ask): Promise<Recording["flows"]> {
  const answers: Record<string, readonly ServerAnswer[]> = {};
  for (const { name, namespace, labels, steps } of FLOWS.filter(({ server }) => server === variant)) {
    const given = [await ask(newNamespace(namespace, labels))];
    for (const step of steps) given.push(await ask(step));
    answers[name] = given;
  }
  return answers;
}

/** RuntimeClasses that the flows name. */
export const RUNTIME_CLASSES: readonly Step[] = ["trusted", "wasm"].map((name) => ({
  method: "POST",
  path: "/apis/node.k8s.io/v1/runtimeclasses",
  body: { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass", metadata: { name }, handler: name },
}));
