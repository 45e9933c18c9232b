/** The command line of `npm run conformance`. */
import { parseArgs } from "node:util";
import { IMAGE_KEYS, type Images } from "./target.ts";

export const USAGE = `Usage: npm run conformance -- [--kubeconfig FILE --node NAME --image KEY=NAME ... [--pull-secret FILE]
                            [--container-logs DIR]] [--focus REGEX] [--skip REGEX] [--parallel N] [--list]

Without --kubeconfig the tests run against a hub, an agent and a containerd that are started for them.

  --kubeconfig FILE     an administrator's, of any Kubernetes API server
  --node NAME           the node to test
  --image KEY=NAME      keys: ${IMAGE_KEYS.join(", ")}; tests whose image is not named are skipped
  --pull-secret FILE    a .dockerconfigjson for the image "private"
  --container-logs DIR  of the node: links to its containers' logs; /var/log/containers unless given
  --focus, --skip       of the tests' names
  --parallel N          how many tests run at the same time; 4 unless given
  --list                prints the tests' names and runs none`;

const DEFAULT_PARALLEL = 4;
/** A kubelet's. */
const DEFAULT_CONTAINER_LOGS = "/var/log/containers";

export interface Arguments {
  readonly cluster: { readonly kubeconfig: string; readonly node: string } | undefined;
  readonly images: Images;
  readonly pullSecretFile: string | undefined;
  readonly containerLogs: string;
  readonly focus: RegExp | undefined;
  readonly skip: RegExp | undefined;
  readonly parallel: number;
  readonly list: boolean;
}

/** @throws a TypeError that says what is wrong */
export function parseArguments(args: readonly string[]): Arguments {
  const { values } = parseArgs({
    args: [...args],
    options: {
      kubeconfig: { type: "string" },
      node: { type: "string" },
      image: { type: "string", multiple: true },
      "pull-secret": { type: "string" },
      "container-logs": { type: "string" },
      focus: { type: "string" },
      skip: { type: "string" },
      parallel: { type: "string" },
      list: { type: "boolean" },
    },
  });
  const { kubeconfig, node } = values;
  if ((kubeconfig === undefined) !== (node === undefined)) throw new TypeError("--kubeconfig and --node go together");
  const parallel = Number(values.parallel ?? DEFAULT_PARALLEL);
  if (!Number.isInteger(parallel) || parallel < 1) throw new TypeError("--parallel needs a number above 0");
  return {
    cluster: kubeconfig === undefined || node === undefined ? undefined : { kubeconfig, node },
    images: imagesOf(values.image ?? []),
    pullSecretFile: values["pull-secret"],
    containerLogs: values["container-logs"] ?? DEFAULT_CONTAINER_LOGS,
    focus: values.focus === undefined ? undefined : new RegExp(values.focus),
    skip: values.skip === undefined ? undefined : new RegExp(values.skip),
    parallel,
    list: values.list ?? false,
  };
}

function imagesOf(given: readonly string[]): Images {
  const images: Record<keyof Images, string> = {
    ...{ busybox: "", other: "", nonroot: "", tool: "", https: "", pullable: "", private: "" },
  };
  for (const each of given) {
    const [key = "", name = ""] = [each.slice(0, each.indexOf("=")), each.slice(each.indexOf("=") + 1)];
    const known = IMAGE_KEYS.find((candidate) => candidate === key);
    if (known === undefined) throw new TypeError(`--image ${each}: the keys are ${IMAGE_KEYS.join(", ")}`);
    images[known] = name;
  }
  return images;
}
