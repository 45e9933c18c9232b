/** The command line of `npm run conformance`. */
import type { Arguments as Input } from "@picolet/protocol/command-line/command-line.ts";
import { choiceFlag, countFlag, fileFlag, parsedFlag, textFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { usageError } from "@picolet/protocol/command-line/usage-error.ts";
import { RUNTIME_RELEASE_NAMES, type RuntimeReleaseName } from "../../support/containerd/runtime-release.ts";
import { IMAGE_KEYS, type Images } from "./target.ts";

const KUBECONFIG = fileFlag({ name: "kubeconfig", help: "an administrator's, of any Kubernetes API server" });
const NODE = textFlag({ name: "node", value: "NAME", help: "the node to test" });
const IMAGE = textFlag({
  name: "image",
  value: "KEY=NAME",
  help: `keys: ${IMAGE_KEYS.join(", ")}; tests whose image is not named are skipped`,
  repeats: true,
});
const PULL_SECRET = fileFlag({ name: "pull-secret", help: 'a .dockerconfigjson for the image "private"' });
const CONTAINER_LOGS = fileFlag({
  name: "container-logs",
  value: "DIR",
  help: "of the node: links to its containers' logs",
  // A kubelet's.
  default: "/var/log/containers",
});
const KUBELET_ROOT = fileFlag({
  name: "kubelet-root",
  value: "DIR",
  help: "of the node: where plugins register; without it their tests are skipped",
});
const PARALLEL = countFlag({ name: "parallel", help: "how many tests run at the same time", default: "4", least: 1 });

const RUNTIME = choiceFlag({
  name: "runtime",
  help: "release of the containerd that is started for the tests",
  choices: RUNTIME_RELEASE_NAMES,
});

const pattern = (text: string): RegExp => new RegExp(text);
const FOCUS = parsedFlag({ name: "focus", value: "REGEX", help: "only tests with such names" }, pattern);
const SKIP = parsedFlag({ name: "skip", value: "REGEX", help: "no tests with such names" }, pattern);

/** For `scriptProgram` in scripts/start/options.ts. */
export const OPTIONS = {
  name: "conformance",
  summary: "what a kubelet does, test by test, against the node of any API server",
  flags: [
    ...[KUBECONFIG, NODE, IMAGE, PULL_SECRET, CONTAINER_LOGS, KUBELET_ROOT, FOCUS, SKIP, PARALLEL, RUNTIME],
    { name: "list", help: "print the tests' names and run none" },
  ],
  notes: ["Without --kubeconfig the tests run against a hub, an agent and a containerd that are started for them."],
} as const;

export interface Arguments {
  readonly cluster: { readonly kubeconfig: string; readonly node: string } | undefined;
  readonly images: Images;
  readonly pullSecretFile: string | undefined;
  readonly containerLogs: string;
  readonly kubeletRoot: string;
  readonly focus: RegExp | undefined;
  readonly skip: RegExp | undefined;
  readonly parallel: number;
  readonly runtime: RuntimeReleaseName | undefined;
  readonly list: boolean;
}

/** @throws a usage error */
export function argumentsOf(input: Input): Arguments {
  const [kubeconfig, node] = [input.value(KUBECONFIG), input.value(NODE)];
  if ((kubeconfig === undefined) !== (node === undefined)) throw usageError("--kubeconfig and --node go together");
  return {
    cluster: kubeconfig === undefined || node === undefined ? undefined : { kubeconfig, node },
    images: imagesOf(input.values(IMAGE)),
    pullSecretFile: input.value(PULL_SECRET),
    containerLogs: input.value(CONTAINER_LOGS),
    kubeletRoot: input.value(KUBELET_ROOT) ?? "",
    focus: input.value(FOCUS),
    skip: input.value(SKIP),
    parallel: input.value(PARALLEL) ?? 1,
    runtime: input.value(RUNTIME),
    list: input.flag("list"),
  };
}

function imagesOf(given: readonly string[]): Images {
  const images: Record<keyof Images, string> = {
    ...{ busybox: "", other: "", nonroot: "", tool: "", https: "", pullable: "", private: "" },
  };
  for (const each of given) {
    const [key = "", name = ""] = [each.slice(0, each.indexOf("=")), each.slice(each.indexOf("=") + 1)];
    const known = IMAGE_KEYS.find((candidate) => candidate === key);
    if (known === undefined) throw usageError(`--image ${each}: the keys are ${IMAGE_KEYS.join(", ")}`);
    images[known] = name;
  }
  return images;
}
