import assert from "node:assert/strict";
import { test } from "node:test";
import { describeError, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { RuntimeKind } from "@picolet/runtime-contract/runtime-adapter.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import fc from "fast-check";
import { hasRuntimeChoice } from "../core/pods/pod-runtime.ts";
import {
  chooseRuntime,
  type ImageAvailability,
  type ImageForms,
  type RuntimeChoice,
  runtimePreferenceOf,
} from "./runtime-choice.ts";

const away = new PicoletError("unavailable", "the registry is away", { retryable: true, reason: "ErrImagePull" });

const image = (
  component: ImageAvailability,
  container: ImageAvailability,
  more: Partial<ImageForms> = {},
): ImageForms => ({
  ...{ image: "app:1", policy: "IfNotPresent", component, container, wasAsked: false },
  ...more,
});
const asked = (
  component: ImageAvailability,
  container: ImageAvailability,
  more: Partial<ImageForms> = {},
): ImageForms => image(component, container, { wasAsked: true, platforms: [], ...more });

const choose = (
  images: readonly ImageForms[],
  { prefer = "component", refusal, hasContainers = true }: Partial<Parameters<typeof chooseRuntime>[0]> = {},
): RuntimeChoice => chooseRuntime({ prefer, refusal, hasContainers, images });

/** `component Preferred`, `ask`, or the error's reason. */
function told(choice: RuntimeChoice): string {
  if (choice.kind === "chosen") return `${choice.runtime.kind} ${choice.runtime.reason}`;
  return choice.kind === "ask" ? "ask" : `${isPicoletError(choice.error) ? choice.error.reason : choice.error}`;
}

const CASES: readonly (readonly [name: string, choice: RuntimeChoice, expected: string])[] = [
  ["what is here is taken without a question", choose([image("here", "unknown")]), "component Preferred"],
  [
    "of both that are here the preferred one",
    choose([image("here", "here")], { prefer: "container" }),
    "container Preferred",
  ],
  ["what is to be as new as the registry's is asked for", choose([image("here", "here", { policy: "Always" })]), "ask"],
  ["the other form alone settles nothing before the registry is asked", choose([image("unknown", "here")]), "ask"],
  ["both in the registry", choose([asked("there", "there")]), "component Preferred"],
  ["both, the other way", choose([asked("there", "there")], { prefer: "container" }), "container Preferred"],
  ["no component", choose([asked("none", "there")]), "container OnlyForm"],
  ["no image for containers", choose([asked("there", "none")], { prefer: "container" }), "component OnlyForm"],
  [
    "one of two images has no component",
    choose([asked("there", "there"), asked("none", "there")]),
    "container OnlyForm",
  ],
  ["neither", choose([asked("none", "none")]), "ErrImagePull"],
  [
    "one has only the one, another only the other",
    choose([asked("there", "none"), asked("none", "there")]),
    "ErrImagePull",
  ],
  ["never pulled, and not here", choose([image("none", "none", { policy: "Never" })]), "ErrImageNeverPull"],
  ["never pulled, the other here", choose([image("none", "here", { policy: "Never" })]), "container OnlyForm"],
  ["registry away, nothing here", choose([asked("unknown", "unknown", { failure: away })]), "ErrImagePull"],
  ["registry away, the other here", choose([asked("unknown", "here", { failure: away })]), "container OnlyForm"],
  [
    "registry away, the preferred one here though it should be newer",
    choose([asked("here", "here", { failure: away, policy: "Always" })]),
    "component Preferred",
  ],
  ["refused as a component", choose([image("here", "here")], { refusal: "hostPID" }), "container CannotBeComponent"],
  ["no runtime for containers", choose([], { prefer: "container", hasContainers: false }), "component OnlyRuntime"],
  [
    "refused, and no runtime for containers: its sandbox says why",
    choose([], { refusal: "hostPID", hasContainers: false }),
    "component OnlyRuntime",
  ],
];

for (const [name, choice, expected] of CASES) test(`${name}: ${expected}`, () => assert.equal(told(choice), expected));

test("without a preference nobody is asked", () => {
  const choice = chooseRuntime({ prefer: undefined, refusal: undefined, hasContainers: true, images: [] });
  assert.equal(told(choice), "container Preferred");
});

test("what is wrong with images is told of each", () => {
  const images = [
    asked("there", "none", { image: "a:1" }),
    asked("none", "none", { image: "b:1", platforms: ["linux/riscv64"] }),
  ];
  const choice = choose(images);
  assert.ok(choice.kind === "impossible");
  const text = describeError(choice.error);
  assert.match(text, /a:1 is a component; b:1 is neither a component nor .*\(linux\/riscv64\)/);
});

test("whatever images have, what is chosen every image has, and who has been asked is not asked again", () => {
  const form = fc.constantFrom<ImageAvailability>("here", "there", "none", "unknown");
  const drawn = fc.record({
    ...{ image: fc.constantFrom("a", "b"), component: form, container: form, wasAsked: fc.boolean() },
    policy: fc.constantFrom("Always", "IfNotPresent", "Never"),
    failure: fc.constantFrom(undefined, away),
  });
  fc.assert(
    fc.property(
      fc.array(drawn, { minLength: 1, maxLength: 4 }),
      fc.constantFrom("component", "container"),
      (images, prefer) => {
        const choice = choose(images as ImageForms[], { prefer: prefer as RuntimeKind });
        if (choice.kind === "ask") assert.ok(images.some(({ wasAsked, policy }) => !wasAsked && policy !== "Never"));
        if (choice.kind !== "chosen") return;
        const { kind } = choice.runtime;
        for (const each of images) assert.ok(each[kind] === "here" || each[kind] === "there", JSON.stringify(images));
      },
    ),
  );
});

const annotated = (annotations: Record<string, string>, runtimeClassName?: string) => {
  const pod = podOf({
    containers: [{ name: "app", image: "app:1" }],
    ...(runtimeClassName ? { runtimeClassName } : {}),
  });
  return { ...pod, metadata: { ...pod.metadata, annotations } };
};
const PREFER = "wasm.picolet.io/prefer";
const PRESSURE = "wasm.picolet.io/under-pressure";

test("only pods with the annotations have a choice, and none of the class wasm", () => {
  assert.equal(hasRuntimeChoice(annotated({})), false);
  assert.equal(hasRuntimeChoice(annotated({ [PREFER]: "component" })), true);
  assert.equal(hasRuntimeChoice(annotated({ [PRESSURE]: "component" }, "kata")), true);
  assert.equal(hasRuntimeChoice(annotated({ [PREFER]: "container" }, "wasm")), false);
});

test("annotations are read strictly, and everything that is wrong with them is said", () => {
  assert.deepEqual(runtimePreferenceOf(annotated({ [PREFER]: "container", [PRESSURE]: "component" })), {
    ...{ prefer: "container", mayBeSwitched: true },
  });
  assert.deepEqual(runtimePreferenceOf(annotated({ [PRESSURE]: "component" })), {
    prefer: undefined,
    mayBeSwitched: true,
  });
  assert.throws(
    () => runtimePreferenceOf(annotated({ [PREFER]: "Wasm", [PRESSURE]: "container" })),
    (error) =>
      isPicoletError(error, "invalid") &&
      error.reason === "CreateContainerConfigError" &&
      /prefer has to be component or container, not "Wasm"; .*under-pressure has to be component, not "container"/.test(
        error.message,
      ),
  );
});
