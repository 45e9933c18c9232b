/** The command line of `npm run conformance`. */
import type { Arguments as Input } from "@picolet/protocol/command-line/command-line.ts";
import { choiceFlag, countFlag, fileFlag, parsedFlag, textFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { usageError } from "@picolet/protocol/command-line/usage-error.ts";
import { RUNTIME_RELEASE_NAMES, type RuntimeReleaseName } from "../support/containerd/runtime-release.ts";
import { IMAGE_KEYS, type Images } from "./framework/target.ts";
import type { GuestBoard } from "./guest-cluster.ts";

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

const BOARD = choiceFlag({
  name: "board",
  help: "an emulated board with systemd and cgroup v2 alone as the node, with agent and containerd in it",
  choices: ["amd64", "arm64"],
});
const PAGES = choiceFlag({ name: "pages", help: "of the memory of --board arm64", choices: ["16k"] });

const COMPONENTS = { name: "components", help: "a node without containers: the other tests are skipped" } as const;

const pattern = (text: string): RegExp => new RegExp(text);
const FOCUS = parsedFlag({ name: "focus", value: "REGEX", help: "only tests with such names" }, pattern);
const SKIP = parsedFlag({ name: "skip", value: "REGEX", help: "no tests with such names" }, pattern);

/** For `scriptProgram` in scripts/options.ts. */
export const OPTIONS = {
  name: "conformance",
  summary: "what a kubelet does, test by test, against the node of any API server",
  flags: [
    ...[
      KUBECONFIG,
      NODE,
      IMAGE,
      PULL_SECRET,
      CONTAINER_LOGS,
      KUBELET_ROOT,
      FOCUS,
      SKIP,
      PARALLEL,
      RUNTIME,
      BOARD,
      PAGES,
      COMPONENTS,
    ],
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
  readonly board: GuestBoard | undefined;
  /** The node has no runtime of containers. */
  readonly componentsOnly: boolean;
  readonly list: boolean;
}

/** @throws a usage error */
export function argumentsOf(input: Input): Arguments {
  const [kubeconfig, node] = [input.value(KUBECONFIG), input.value(NODE)];
  if ((kubeconfig === undefined) !== (node === undefined)) throw usageError("--kubeconfig and --node go together");
  const [architecture, runtime, pages] = [input.value(BOARD), input.value(RUNTIME), input.value(PAGES)];
  if (architecture !== undefined && kubeconfig !== undefined) throw usageError("--board starts a cluster of its own");
  if (pages !== undefined && architecture !== "arm64") throw usageError("--pages needs --board arm64");
  return {
    cluster: kubeconfig === undefined || node === undefined ? undefined : { kubeconfig, node },
    images: imagesOf(input.values(IMAGE)),
    pullSecretFile: input.value(PULL_SECRET),
    containerLogs: input.value(CONTAINER_LOGS),
    kubeletRoot: input.value(KUBELET_ROOT) ?? "",
    focus: input.value(FOCUS),
    skip: input.value(SKIP),
    parallel: input.value(PARALLEL) ?? 1,
    runtime,
    componentsOnly: input.flag("components"),
    board: architecture === undefined ? undefined : { architecture, runtime, pages },
    list: input.flag("list"),
  };
}

function imagesOf(given: readonly string[]): Images {
  const images: Record<keyof Images, string> = {
    ...{ busybox: "", other: "", nonroot: "", tool: "", https: "", pullable: "", private: "" },
    ...{ component: "", componentServer: "" },
  };
  for (const each of given) {
    const [key = "", name = ""] = [each.slice(0, each.indexOf("=")), each.slice(each.indexOf("=") + 1)];
    const known = IMAGE_KEYS.find((candidate) => candidate === key);
    if (known === undefined) throw usageError(`--image ${each}: the keys are ${IMAGE_KEYS.join(", ")}`);
    images[known] = name;
  }
  return images;
}
