import assert from "node:assert/strict";
import { test } from "node:test";
import { parsedPod } from "../../test/support/pod-manifests.ts";
import { NamespaceMode, ProfileType } from "./cri-messages.ts";
import { containerSecurity, type ImageUser, needsImageUser, sandboxSecurity } from "./security-context.ts";

type Fields = Readonly<Record<string, unknown>>;
const SETTINGS = { seccompProfileRoot: "/profiles", seccompDefault: false };

function contexts(ofPod: Fields, ofContainer: Fields = {}, spec: Fields = {}) {
  const container = { name: "app", image: "example.com/app:1", securityContext: ofContainer };
  const pod = parsedPod({ securityContext: ofPod, containers: [container], ...spec });
  const [first] = pod.spec.containers;
  assert.ok(first);
  return {
    sandbox: () => sandboxSecurity(pod),
    container: (user?: ImageUser, settings = SETTINGS) => containerSecurity(pod, first, user, settings),
    needsImageUser: () => needsImageUser(pod, first),
  };
}

test("nothing said: the image's user, seccomp Unconfined, /proc masked, own namespaces", () => {
  const plain = contexts({}).container();
  assert.equal(plain.runAsUser, undefined);
  assert.deepEqual(plain.seccomp, { profileType: ProfileType.Unconfined });
  assert.equal(plain.apparmor, undefined);
  assert.equal(plain.privileged, false);
  assert.equal(plain.noNewPrivs, false);
  assert.ok(plain.maskedPaths?.includes("/proc/kcore"));
  assert.ok(plain.readonlyPaths?.includes("/proc/sys"));
  assert.deepEqual(plain.namespaceOptions, {
    network: NamespaceMode.pod,
    ipc: NamespaceMode.pod,
    pid: NamespaceMode.container,
  });
  assert.deepEqual(contexts({}).container(undefined, { ...SETTINGS, seccompDefault: true }).seccomp, {
    profileType: ProfileType.RuntimeDefault,
  });
});

test("a container's own fields come before its pod's", () => {
  const ofPod = { runAsUser: 1000, runAsGroup: 2000, seccompProfile: { type: "RuntimeDefault" } };
  const own = { runAsUser: 3000, seccompProfile: { type: "Localhost", localhostProfile: "own.json" } };
  const container = contexts(ofPod, own).container();
  assert.deepEqual([container.runAsUser, container.runAsGroup], [{ value: 3000 }, { value: 2000 }]);
  assert.deepEqual(container.seccomp, { profileType: ProfileType.Localhost, localhostRef: "/profiles/own.json" });
  const sandbox = contexts(ofPod, own).sandbox();
  assert.deepEqual([sandbox.runAsUser, sandbox.runAsGroup], [{ value: 1000 }, { value: 2000 }]);
  assert.deepEqual(sandbox.seccomp, { profileType: ProfileType.RuntimeDefault });
});

test("user 0 is a user, and is sent", () => {
  assert.deepEqual(contexts({ runAsUser: 0 }).container().runAsUser, { value: 0 });
});

test("privileges, capabilities, root and groups are as the pod says", () => {
  const container = contexts(
    { fsGroup: 7, supplementalGroups: [8, 9] },
    {
      capabilities: { add: ["NET_ADMIN"], drop: ["ALL"] },
      readOnlyRootFilesystem: true,
      allowPrivilegeEscalation: false,
      appArmorProfile: { type: "Localhost", localhostProfile: "mine" },
    },
  ).container();
  assert.deepEqual(container.capabilities, { addCapabilities: ["NET_ADMIN"], dropCapabilities: ["ALL"] });
  assert.deepEqual(container.supplementalGroups, [7, 8, 9]);
  assert.equal(container.readonlyRootfs, true);
  assert.equal(container.noNewPrivs, true);
  assert.deepEqual(container.apparmor, { profileType: ProfileType.Localhost, localhostRef: "mine" });
  const privileged = contexts({}, { privileged: true });
  assert.equal(privileged.container().privileged, true);
  assert.equal(privileged.sandbox().privileged, true);
});

test("the host's namespaces, and one process namespace for the pod", () => {
  const host = { hostNetwork: true, hostPID: true, hostIPC: true };
  const { node, pod } = NamespaceMode;
  assert.deepEqual(contexts({}, {}, host).sandbox().namespaceOptions, { network: node, pid: node, ipc: node });
  const shared = contexts({}, {}, { shareProcessNamespace: true }).sandbox().namespaceOptions;
  assert.deepEqual(shared, { network: pod, pid: pod, ipc: pod });
});

test("/proc is unmasked on demand", () => {
  const container = contexts({}, { procMount: "Unmasked" }, { hostUsers: false }).container();
  assert.deepEqual([container.maskedPaths, container.readonlyPaths], [[], []]);
});

test("the image's user matters only where nobody says who runs and it makes a difference", () => {
  assert.equal(contexts({}).needsImageUser(), false);
  assert.equal(contexts({ runAsNonRoot: true }).needsImageUser(), true);
  assert.equal(contexts({ runAsNonRoot: true, runAsUser: 5 }).needsImageUser(), false);
  assert.equal(contexts({}, { runAsGroup: 5 }).needsImageUser(), true);
  const root: ImageUser = { uid: undefined, username: "" };
  assert.deepEqual(contexts({}, { runAsGroup: 5 }).container(root).runAsUser, { value: 0 });
  const named: ImageUser = { uid: undefined, username: "web" };
  assert.equal(contexts({}, { runAsGroup: 5 }).container(named).runAsUsername, "web");
});

const REFUSED: readonly (readonly [string, Fields, ImageUser | undefined, RegExp])[] = [
  ["user 0", { runAsNonRoot: true, runAsUser: 0 }, undefined, /breaks non-root policy/],
  ["an image that says nothing", { runAsNonRoot: true }, { uid: undefined, username: "" }, /will run as root/],
  ["an image of user 0", { runAsNonRoot: true }, { uid: 0, username: "" }, /will run as root/],
  [
    "an image with a named user",
    { runAsNonRoot: true },
    { uid: undefined, username: "web" },
    /non-numeric user \(web\)/,
  ],
];
for (const [what, context, user, message] of REFUSED) {
  test(`runAsNonRoot refuses ${what}`, () => {
    assert.throws(() => contexts(context).container(user), {
      code: "invalid",
      reason: "CreateContainerConfigError",
      message,
    });
  });
}

test("runAsNonRoot lets other users run", () => {
  assert.deepEqual(contexts({ runAsNonRoot: true }).container({ uid: 5, username: "" }).runAsUser, { value: 5 });
  assert.deepEqual(contexts({ runAsNonRoot: true, runAsUser: 5 }).container().runAsUser, { value: 5 });
});
