/**
 * Chooses the runtime of a pod whose images have both forms, component and container image: by its annotations and by
 * the forms that are available. Pure.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Container, Pod } from "@picolet/protocol/pod/pod.ts";
import type { ChosenRuntime, RuntimeKind } from "@picolet/runtime-contract/runtime-adapter.ts";
import { PREFER_ANNOTATION, UNDER_PRESSURE_ANNOTATION } from "../core/pods/pod-runtime.ts";

export interface RuntimePreference {
  readonly prefer: RuntimeKind | undefined;
  readonly mayBeSwitched: boolean;
}

/** @throws `invalid` with everything that is wrong with its annotations */
export function runtimePreferenceOf({ metadata: { annotations = {} } }: Pod): RuntimePreference {
  const prefer = annotations[PREFER_ANNOTATION];
  const underPressure = annotations[UNDER_PRESSURE_ANNOTATION];
  const isKnown = prefer === undefined || prefer === "component" || prefer === "container";
  const problems = [
    ...(isKnown ? [] : [`${PREFER_ANNOTATION} has to be component or container, not ${JSON.stringify(prefer)}`]),
    ...(underPressure === undefined || underPressure === "component"
      ? []
      : [`${UNDER_PRESSURE_ANNOTATION} has to be component, not ${JSON.stringify(underPressure)}`]),
  ];
  if (isKnown && problems.length === 0) return { prefer, mayBeSwitched: underPressure === "component" };
  throw new PicoletError("invalid", `cannot choose a runtime: ${problems.join("; ")}`, {
    reason: "CreateContainerConfigError",
  });
}

/** Availability of one form: `here` on this node, `there` in its registry, `none`, or `unknown`. */
export type ImageAvailability = "here" | "there" | "none" | "unknown";

export interface ImageForms {
  readonly image: string;
  readonly policy: Container["imagePullPolicy"];
  readonly component: ImageAvailability;
  readonly container: ImageAvailability;
  /** Platforms in the registry, such as `linux/arm64`. */
  readonly platforms?: readonly string[] | undefined;
  /** Why its registry did not say; `undefined`: it did, or was not asked. */
  readonly failure?: unknown;
  readonly wasAsked: boolean;
}

export interface ChoiceSituation {
  readonly prefer: RuntimeKind | undefined;
  /** Why it could never run as components. */
  readonly refusal: string | undefined;
  /** True when this node has a runtime for containers. */
  readonly hasContainers: boolean;
  /** Images of all containers. Empty: not inspected. */
  readonly images: readonly ImageForms[];
}

export type RuntimeChoice =
  | { readonly kind: "chosen"; readonly runtime: ChosenRuntime }
  /** What is on this node does not settle it. */
  | { readonly kind: "ask" }
  | { readonly kind: "impossible"; readonly error: unknown };

const WORDS: Readonly<Record<RuntimeKind, string>> = { component: "a component", container: "an image for containers" };

/** @returns the choice that needs no inspection of images, if there is one */
export function chooseWithoutImages({ prefer, refusal, hasContainers }: ChoiceSituation): ChosenRuntime | undefined {
  if (!hasContainers) return chosen("component", "OnlyRuntime", "this node runs components only");
  if (prefer === undefined) return chosen("container", "Preferred", "the pod prefers nothing else");
  if (refusal !== undefined) return chosen("container", "CannotBeComponent", refusal);
  return undefined;
}

/**
 * Chooses a form that all images have, the preferred one first. A registry that cannot be reached is ignored if the
 * node has all images in one form.
 */
export function chooseRuntime(situation: ChoiceSituation): RuntimeChoice {
  const { images, prefer = "container" } = situation;
  const settled = chooseWithoutImages(situation);
  if (settled !== undefined) return { kind: "chosen", runtime: settled };
  if (images.every((each) => isCertain(each, prefer))) return { kind: "chosen", runtime: preferred(prefer) };
  if (images.some((each) => !each.wasAsked && each.policy !== "Never")) return { kind: "ask" };
  if (images.every((each) => has(each, prefer))) return { kind: "chosen", runtime: preferred(prefer) };
  const other = prefer === "component" ? "container" : "component";
  if (images.every((each) => has(each, other))) return { kind: "chosen", runtime: onlyForm(images, prefer, other) };
  return { kind: "impossible", error: images.find(({ failure }) => failure !== undefined)?.failure ?? missing(images) };
}

const has = (image: ImageForms, kind: RuntimeKind): boolean => image[kind] === "here" || image[kind] === "there";

/** False for an image with the pull policy Always, whose registry may have a newer one. */
const isCertain = (image: ImageForms, kind: RuntimeKind): boolean =>
  image[kind] === "there" || (image[kind] === "here" && (image.policy !== "Always" || image.wasAsked));

const chosen = (kind: RuntimeKind, reason: ChosenRuntime["reason"], message: string): ChosenRuntime => ({
  kind,
  reason,
  message,
});

const preferred = (kind: RuntimeKind): ChosenRuntime =>
  chosen(kind, "Preferred", `the pod prefers ${kind}, and its images have it`);

function onlyForm(images: readonly ImageForms[], prefer: RuntimeKind, other: RuntimeKind): ChosenRuntime {
  const without = images.filter((each) => !has(each, prefer));
  const unasked = without.filter(({ failure }) => failure !== undefined);
  const names = (some: readonly ImageForms[]): string => [...new Set(some.map(({ image }) => image))].join(", ");
  const message =
    unasked.length > 0
      ? `the registry of ${names(unasked)} cannot be asked, and this node has ${WORDS[other]} of it only`
      : `${names(without)} has no ${prefer}`;
  return chosen(other, "OnlyForm", message);
}

/** No form is in all of them. */
function missing(images: readonly ImageForms[]): PicoletError {
  const never = images.find((each) => each.policy === "Never" && !has(each, "component") && !has(each, "container"));
  if (never !== undefined) {
    const message = `Container image ${JSON.stringify(never.image)} is not present with pull policy of Never`;
    return new PicoletError("not_found", message, { reason: "ErrImageNeverPull", retryable: true });
  }
  const message = `cannot run all containers by one runtime: ${images.map(described).join("; ")}`;
  return new PicoletError("not_found", message, { reason: "ErrImagePull", retryable: true });
}

function described(image: ImageForms): string {
  const forms = (["component", "container"] as const).filter((kind) => has(image, kind)).map((kind) => WORDS[kind]);
  const found = image.platforms === undefined ? "" : ` (${image.platforms.join(", ") || "nothing"})`;
  return `${image.image} is ${forms.join(" and ") || `neither a component nor an image for this node's containers${found}`}`;
}
