import { describeError } from "@picolet/protocol/errors.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { ChosenRuntime, DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { RuntimeChoices } from "../core/pods/pod-ports.ts";
import type { DesiredStore, EventRecorder } from "../core/store/store-ports.ts";
import {
  type ChoiceSituation,
  chooseRuntime,
  chooseWithoutImages,
  type ImageAvailability,
  type ImageForms,
  runtimePreferenceOf,
} from "../plan/runtime-choice.ts";
import { type ImagePuller, podReference } from "./pulls/image-puller.ts";

export interface RuntimeChooserComponents {
  readonly components: RuntimeAdapter;
  /** The container runtime. Missing: this node runs components only. */
  readonly containers: RuntimeAdapter | undefined;
  readonly puller: Pick<ImagePuller, "present" | "platforms">;
  readonly store: Pick<DesiredStore, "choose">;
  readonly events: EventRecorder;
  readonly log: Log;
}

/** Finds out what the images of a pod are, and has it written down which of that it is run as. */
export class RuntimeChooser implements RuntimeChoices {
  readonly #components: RuntimeChooserComponents;

  constructor(components: RuntimeChooserComponents) {
    this.#components = components;
  }

  async choose(pod: DesiredPod, holder: RuntimeAdapter | undefined, signal: AbortSignal): Promise<void> {
    const runtime = holder === undefined ? await this.#find(pod, signal) : this.#asFound(holder);
    signal.throwIfAborted();
    const { store, events, log } = this.#components;
    store.choose(pod.uid, runtime);
    log.info("a runtime was chosen for a pod", { pod: pod.uid, ...runtime });
    const message = `Running as ${runtime.kind}: ${runtime.message}`;
    events.record({ regarding: podReference(pod), type: "Normal", reason: "RuntimeChosen", message });
  }

  /** The store has lost what was chosen. */
  #asFound(holder: RuntimeAdapter): ChosenRuntime {
    const kind = holder === this.#components.components ? "component" : "container";
    return { kind, reason: "AsFound", message: "the pod was found running so" };
  }

  async #find(pod: DesiredPod, signal: AbortSignal): Promise<ChosenRuntime> {
    const { components, containers } = this.#components;
    const { prefer } = runtimePreferenceOf(pod.pod);
    const refusal = await components.refusal?.(pod.pod);
    const situation: ChoiceSituation = { prefer, refusal, hasContainers: containers !== undefined, images: [] };
    const settled = chooseWithoutImages(situation);
    if (settled !== undefined) return settled;
    const here = await Promise.all(imagesOf(pod).map((container) => this.#inspect(pod, container, signal)));
    let choice = chooseRuntime({ ...situation, images: here.map(({ forms }) => forms) });
    if (choice.kind === "ask") {
      const images = await Promise.all(here.map(({ container, forms }) => this.#ask(pod, container, forms, signal)));
      choice = chooseRuntime({ ...situation, images });
    }
    if (choice.kind === "chosen") return choice.runtime;
    throw choice.kind === "impossible" ? choice.error : new Error("all runtimes were asked");
  }

  async #inspect(pod: DesiredPod, container: Container, signal: AbortSignal) {
    const { components, containers, puller } = this.#components;
    const { image, imagePullPolicy: policy } = container;
    const runtimes = [components, ...(containers === undefined ? [] : [containers])];
    const present = await puller.present(pod, container, runtimes, signal);
    const form = (adapter: RuntimeAdapter | undefined): ImageAvailability => {
      if (adapter !== undefined && present.get(adapter) === true) return "here";
      return policy === "Never" ? "none" : "unknown";
    };
    const forms: ImageForms = {
      ...{ image, policy, component: form(components), container: form(containers) },
      wasAsked: false,
    };
    return { container, forms };
  }

  async #ask(pod: DesiredPod, container: Container, forms: ImageForms, signal: AbortSignal): Promise<ImageForms> {
    if (forms.policy === "Never") return forms;
    try {
      const found = await this.#components.puller.platforms(pod, container, this.#components.components, signal);
      const { component, container: ofContainers, platforms } = found;
      return {
        ...forms,
        component: afterAnswer(forms, "component", component),
        container: afterAnswer(forms, "container", ofContainers),
        platforms,
        wasAsked: true,
      };
    } catch (error) {
      if (signal.aborted) throw error;
      this.#components.log.debug("cannot tell what an image is", { image: forms.image, error: describeError(error) });
      return { ...forms, failure: error, wasAsked: true };
    }
  }
}

/** What is here and not in the registry was brought by hand, and stays good where nothing newer is asked for. */
function afterAnswer(forms: ImageForms, kind: "component" | "container", isThere: boolean): ImageAvailability {
  if (isThere) return "there";
  return forms[kind] === "here" && forms.policy !== "Always" ? "here" : "none";
}

/** Each image once for a policy. */
function imagesOf({ pod: { spec } }: DesiredPod): readonly Container[] {
  const containers = [...(spec.initContainers ?? []), ...spec.containers];
  return [...new Map(containers.map((each) => [`${each.imagePullPolicy} ${each.image}`, each])).values()];
}
