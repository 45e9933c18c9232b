/** Reads the requests of a pod's claims, with their device classes. Pure. */
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Toleration } from "@picolet/protocol/pod/pod.ts";
import type { ResourceClaim } from "./claims-of-pod.ts";

interface CelSelector {
  readonly cel?: { readonly expression?: string };
}

interface DeviceRequest {
  readonly name?: string;
  readonly deviceClassName?: string;
  readonly selectors?: readonly CelSelector[];
  readonly allocationMode?: string;
  readonly count?: number;
  readonly adminAccess?: boolean;
  readonly tolerations?: readonly Toleration[];
}

interface ClaimConfig {
  readonly requests?: readonly string[];
}

interface ClaimSpec {
  readonly devices?: {
    readonly requests?: readonly {
      readonly name: string;
      readonly exactly?: DeviceRequest;
      readonly firstAvailable?: readonly DeviceRequest[];
    }[];
    readonly constraints?: readonly {
      readonly requests?: readonly string[];
      readonly matchAttribute?: string;
      readonly distinctAttribute?: string;
    }[];
    readonly config?: readonly ClaimConfig[];
  };
}

interface ClassSpec {
  readonly selectors?: readonly CelSelector[];
  readonly config?: readonly object[];
}

/** Expressions that a device must meet, with where each of them is, for messages. */
export interface Selector {
  readonly expression: string;
  /** `class gpu: selector #0`. */
  readonly label: string;
}

export interface RequestNeeds {
  /** As results name it: `gpu`, or `gpu/large` for one of several choices. */
  readonly name: string;
  readonly parent: string;
  /** Those of the class first. */
  readonly selectors: readonly Selector[];
  readonly mode: "ExactCount" | "All";
  readonly count: number;
  readonly adminAccess: boolean;
  readonly tolerations: readonly Toleration[];
  readonly classConfig: readonly object[];
}

export interface Constraint {
  /** Empty: all. */
  readonly requests: readonly string[];
  readonly attribute: string;
  /** True: all devices have the same value; false: each has another one. */
  readonly isSame: boolean;
}

export interface ClaimNeeds {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** Choices by request, the preferred one first. */
  readonly requests: readonly (readonly RequestNeeds[])[];
  readonly constraints: readonly Constraint[];
  readonly config: readonly ClaimConfig[];
}

export type ClaimNeedsResult =
  | { readonly ok: true; readonly needs: ClaimNeeds }
  | { readonly ok: false; readonly problem: string };

/** @param classOf undefined: there is no such class */
export function claimNeeds(
  { metadata, spec }: ResourceClaim,
  classOf: (name: string) => KubeObject | undefined,
): ClaimNeedsResult {
  const { requests = [], constraints = [], config = [] } = ((spec ?? {}) as ClaimSpec).devices ?? {};
  const { namespace = "", name, uid = "" } = metadata;
  const needs: RequestNeeds[][] = [];
  for (const { name: parent, exactly, firstAvailable = [] } of requests) {
    const choices: RequestNeeds[] = [];
    for (const each of exactly === undefined ? firstAvailable : [exactly]) {
      const full = exactly === undefined ? `${parent}/${each.name}` : parent;
      const found = classOf(each.deviceClassName ?? "");
      if (found === undefined) {
        return { ok: false, problem: `request ${full}: device class ${each.deviceClassName} does not exist` };
      }
      choices.push(requestNeeds(each, { full, parent }, found.metadata.name, (found.spec ?? {}) as ClassSpec));
    }
    needs.push(choices);
  }
  const rules = constraints.map(({ requests: names = [], matchAttribute, distinctAttribute }) => ({
    requests: names,
    attribute: matchAttribute ?? distinctAttribute ?? "",
    isSame: matchAttribute !== undefined,
  }));
  return { ok: true, needs: { namespace, name, uid, requests: needs, constraints: rules, config } };
}

function requestNeeds(
  request: DeviceRequest,
  { full, parent }: { readonly full: string; readonly parent: string },
  className: string,
  { selectors: classSelectors = [], config = [] }: ClassSpec,
): RequestNeeds {
  const labelled = (selectors: readonly CelSelector[], owner: string): readonly Selector[] =>
    selectors.map(({ cel }, index) => ({ expression: cel?.expression ?? "", label: `${owner}selector #${index}` }));
  return {
    name: full,
    parent,
    selectors: [...labelled(classSelectors, `class ${className}: `), ...labelled(request.selectors ?? [], "")],
    mode: request.allocationMode === "All" ? "All" : "ExactCount",
    count: request.count ?? 1,
    adminAccess: request.adminAccess === true,
    tolerations: request.tolerations ?? [],
    classConfig: config,
  };
}
