import type { KubeObject, ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import { NAMESPACES } from "@picolet/hub-core/kube-client/resource-types.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { type Millis, seconds } from "@picolet/protocol/ports.ts";
import type { Condition } from "../../api/typed-objects.ts";
import { NAMESPACE_FINALIZER } from "../../resources/cluster-resources.ts";
import { Controller } from "../controller.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import type { ObjectCache } from "../object-cache.ts";

/** How often a namespace is checked that still has pods; they take their time to end. */
const RECHECK = seconds(2);
/** Objects of one kind that one round deletes; the next round goes on. */
const PAGE = 500;
interface Namespace extends KubeObject {
  readonly spec?: { readonly finalizers?: readonly string[] };
  readonly status?: { readonly phase?: string; readonly conditions?: readonly Condition[] };
}

interface Content {
  /** `pods.`, `daemonsets.apps`: how many of each are left. */
  readonly counts: ReadonlyMap<string, number>;
  readonly finalizers: ReadonlyMap<string, number>;
}

/** Empties a namespace that is being deleted, then lets it go. */
export class NamespaceController extends Controller {
  readonly #ports: ControllerPorts;
  readonly #namespaces: ObjectCache;
  readonly #types: readonly ResourceType[];

  /** @param components.types all that can be in a namespace and can be deleted */
  constructor(
    components: ControllerPorts & { readonly namespaces: ObjectCache; readonly types: readonly ResourceType[] },
  ) {
    const { namespaces, types, ...ports } = components;
    super(ports, { name: "namespace controller", needs: [namespaces] });
    this.#ports = ports;
    this.#namespaces = namespaces;
    this.#types = types;
    namespaces.onChange(({ key, after }) => {
      if (after?.metadata.deletionTimestamp !== undefined) this.loop.add(key);
    });
  }

  protected async reconcile(name: string, signal: AbortSignal): Promise<Millis | undefined> {
    const namespace = this.#namespaces.get(name) as Namespace | undefined;
    if (namespace?.metadata.deletionTimestamp === undefined) return undefined;
    const finalizers = namespace.spec?.finalizers ?? [];
    if (!finalizers.includes(NAMESPACE_FINALIZER)) return undefined;
    const content = await this.#deleteContent(name, signal);
    if (content.counts.size > 0) {
      await this.#reportRemaining(namespace, content, signal);
      return RECHECK;
    }
    const spec = { ...namespace.spec, finalizers: finalizers.filter((each) => each !== NAMESPACE_FINALIZER) };
    const update: KubeObject = { ...namespace, spec };
    try {
      await this.#ports.client.update(NAMESPACES, { namespace: "", name }, update, { subresource: "finalize" }, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found")) throw error;
    }
    return undefined;
  }

  /** @returns what is still there: it has finalizers, or ends in its own time */
  async #deleteContent(namespace: string, signal: AbortSignal): Promise<Content> {
    const counts = new Map<string, number>();
    const finalizers = new Map<string, number>();
    for (const type of this.#types) {
      const before = await this.#ports.client.list(type, { namespace, limit: PAGE }, signal);
      for (const { metadata } of before.items) {
        if (metadata.deletionTimestamp === undefined) await this.#delete(type, namespace, metadata.name, signal);
      }
      if (before.items.length === 0) continue;
      const after = await this.#ports.client.list(type, { namespace, limit: PAGE }, signal);
      if (after.items.length > 0) counts.set(`${type.plural}.${type.group}`, after.items.length);
      for (const finalizer of after.items.flatMap(({ metadata }) => metadata.finalizers ?? [])) {
        finalizers.set(finalizer, (finalizers.get(finalizer) ?? 0) + 1);
      }
    }
    return { counts, finalizers };
  }

  async #delete(type: ResourceType, namespace: string, name: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#ports.client.delete(type, { namespace, name }, { propagationPolicy: "Background" }, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found")) throw error;
    }
  }

  async #reportRemaining(namespace: Namespace, content: Content, signal: AbortSignal): Promise<void> {
    const resources = [...content.counts].map(([name, count]) => `${name} has ${count} resource instances`);
    const finalizers = [...content.finalizers].map(([name, count]) => `${name} in ${count} resource instances`);
    const wanted = [
      condition("NamespaceContentRemaining", "SomeResourcesRemain", "Some resources are remaining", resources),
      condition(
        "NamespaceFinalizersRemaining",
        "SomeFinalizersRemain",
        "Some content in the namespace has finalizers remaining",
        finalizers,
      ),
    ];
    const before = namespace.status?.conditions ?? [];
    const same = wanted.every(({ type, status, message }) =>
      before.some((each) => each.type === type && each.status === status && each.message === message),
    );
    if (same) return;
    const now = kubeTime(this.#ports.clock.wall());
    const conditions = wanted.map((each) => ({ ...each, lastTransitionTime: now }));
    const { name } = namespace.metadata;
    const update: KubeObject = { ...namespace, status: { ...namespace.status, conditions } };
    await this.#ports.client.update(NAMESPACES, { namespace: "", name }, update, { subresource: "status" }, signal);
  }
}

function condition(type: string, reason: string, text: string, details: readonly string[]): Condition {
  if (details.length === 0) {
    return {
      type,
      status: "False",
      reason: type === "NamespaceContentRemaining" ? "ContentRemoved" : "ContentHasNoFinalizers",
      message: "",
    };
  }
  return { type, status: "True", reason, message: `${text}: ${[...details].sort().join(", ")}` };
}
