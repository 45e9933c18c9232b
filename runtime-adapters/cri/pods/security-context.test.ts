import assert from "node:assert/strict";
import { test } from "node:test";
import { podUid } from "@picolet/protocol/ports.ts";
import { POD_CONFIG_SETTINGS } from "@picolet/test/support/unit/cri/cri-adapters.ts";
import { parsedPod } from "@picolet/test/support/unit/pods/parsed-manifests.ts";
import { NamespaceMode, ProfileType } from "../wire/cri-messages.ts";
import {
  type ContainerIdentity,
  containerSecurity,
  type ImageUser,
  needsImageUser,
  sandboxSecurity,
} from "./security-context.ts";

type Fields = Readonly<Record<string, unknown>>;
const { machine } = POD_CONFIG_SETTINGS;
const SETTINGS = { seccompProfileRoot: "/profiles", seccompDefault: false, machine };

function contexts(ofPod: Fields, ofContainer: Fields = {}, spec: Fields = {}) {
  const container = { name: "app", image: "example.com/app:1", securityContext: ofContainer };
  const pod = parsedPod({ securityContext: ofPod, containers: [container], ...spec });
  const [first] = pod.spec.containers;
  assert.ok(first);
  return {
    sandbox: (launch: Parameters<typeof sandboxSecurity>[1] = {}) => sandboxSecurity(pod, launch),
    container: (imageUser?: ImageUser, settings = SETTINGS, identity: ContainerIdentity = {}) =>
      containerSecurity(
        { uid: podUid("uid-1"), source: "file", origin: "", pod },
        first,
        { imageUser, ...identity },
        settings,
      ),
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

test("groups of the pod's volumes are beside its own", () => {
  const { sandbox, container } = contexts({ fsGroup: 7, supplementalGroups: [8] });
  assert.deepEqual(container(undefined, SETTINGS, { extraGroups: [9] }).supplementalGroups, [7, 8, 9]);
  assert.deepEqual(sandbox({ extraGroups: [9] }).supplementalGroups, [7, 8, 9]);
});

test("the host's namespaces, and one process namespace for the pod", () => {
  const host = { hostNetwork: true, hostPID: true, hostIPC: true };
  const { node, pod } = NamespaceMode;
  assert.deepEqual(contexts({}, {}, host).sandbox().namespaceOptions, { network: node, pid: node, ipc: node });
  const shared = contexts({}, {}, { shareProcessNamespace: true }).sandbox().namespaceOptions;
  assert.deepEqual(shared, { network: pod, pid: pod, ipc: pod });
});

test("the thermal counters of all processors are masked", () => {
  const thermalFolders = ["/sys/devices/system/cpu/cpu0/thermal_throttle"];
  const settings = { ...SETTINGS, machine: { ...machine, thermalFolders } };
  assert.deepEqual(contexts({}).container(undefined, settings).maskedPaths?.slice(-1), thermalFolders);
  const unmasked = contexts({}, { procMount: "Unmasked" }, { hostUsers: false });
  assert.deepEqual(unmasked.container(undefined, settings).maskedPaths, []);
});

test("/proc is unmasked on demand", () => {
  const container = contexts({}, { procMount: "Unmasked" }, { hostUsers: false }).container();
  assert.deepEqual([container.maskedPaths, container.readonlyPaths], [[], []]);
});

test("the image's user counts where the pod names none", () => {
  assert.equal(contexts({}).needsImageUser(), true);
  assert.equal(contexts({}, { runAsUser: 0 }).needsImageUser(), false);
  assert.equal(contexts({ runAsNonRoot: true }).needsImageUser(), true);
  assert.equal(contexts({ runAsNonRoot: true, runAsUser: 5 }).needsImageUser(), false);
  assert.equal(contexts({}, { runAsGroup: 5 }).needsImageUser(), true);
  const root: ImageUser = { uid: undefined, username: "" };
  assert.deepEqual(contexts({}, { runAsGroup: 5 }).container(root).runAsUser, { value: 0 });
  const named: ImageUser = { uid: undefined, username: "web" };
  assert.equal(contexts({}, { runAsGroup: 5 }).container(named).runAsUsername, "web");
});

const WHOSE = `(pod: "web_default(uid-1)", container: app)`;
const REFUSED: readonly (readonly [string, Fields, ImageUser | undefined, string])[] = [
  ["user 0", { runAsNonRoot: true, runAsUser: 0 }, undefined, "container's runAsUser breaks non-root policy"],
  [
    "an image that says nothing",
    { runAsNonRoot: true },
    { uid: undefined, username: "" },
    "container has runAsNonRoot and image will run as root",
  ],
  [
    "an image of user 0",
    { runAsNonRoot: true },
    { uid: 0, username: "" },
    "container has runAsNonRoot and image will run as root",
  ],
  [
    "an image with a named user",
    { runAsNonRoot: true },
    { uid: undefined, username: "web" },
    "container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root",
  ],
  [
    "an image of a user that there cannot be",
    { runAsNonRoot: true },
    { uid: 2 ** 31, username: "" },
    "container has runAsNonRoot and image has an invalid user id (2147483648). (Must be 1-(2147483647)): " +
      "must be between 0 and 2147483647, inclusive",
  ],
];
for (const [what, context, user, message] of REFUSED) {
  test(`runAsNonRoot refuses ${what}`, () => {
    assert.throws(() => contexts(context).container(user), {
      code: "invalid",
      reason: "CreateContainerConfigError",
      message: `${message} ${WHOSE}`,
    });
  });
}

test("runAsNonRoot lets other users run", () => {
  assert.deepEqual(contexts({ runAsNonRoot: true }).container({ uid: 5, username: "" }).runAsUser, { value: 5 });
  assert.deepEqual(contexts({ runAsNonRoot: true, runAsUser: 5 }).container().runAsUser, { value: 5 });
});

test("an ephemeral container sees its target's processes, unless it sees more already", () => {
  const identity = { targetContainerId: "target" };
  const { container, target, pod } = NamespaceMode;
  const pidOf = (spec: Fields, with_?: ContainerIdentity) => {
    const options = contexts({}, {}, spec).container(undefined, SETTINGS, with_).namespaceOptions;
    return [options?.pid, options?.targetId];
  };
  assert.deepEqual(pidOf({}, identity), [target, "target"]);
  assert.deepEqual(pidOf({}), [container, undefined]);
  assert.deepEqual(pidOf({ shareProcessNamespace: true }, identity), [pod, undefined]);
  assert.deepEqual(pidOf({ hostPID: true }, identity), [NamespaceMode.node, undefined]);
});

test("with hostUsers: false the ids of the pod are others on the node", () => {
  const userNamespace = { hostId: 131_072, length: 65_536 };
  const mappings = [{ hostId: 131_072, containerId: 0, length: 65_536 }];
  const expected = { mode: NamespaceMode.pod, uids: mappings, gids: mappings };
  const { sandbox, container } = contexts({}, {}, { hostUsers: false });
  assert.deepEqual(sandbox({ userNamespace }).namespaceOptions?.usernsOptions, expected);
  assert.deepEqual(container(undefined, SETTINGS, { userNamespace }).namespaceOptions?.usernsOptions, expected);
  assert.equal(sandbox().namespaceOptions?.usernsOptions, undefined);
});

test("AppArmor is taken from the container, its annotation, then the pod", () => {
  const own = { appArmorProfile: { type: "Unconfined" } };
  const ofPod = { appArmorProfile: { type: "RuntimeDefault" } };
  assert.equal(contexts(ofPod, own).container().apparmor?.profileType, ProfileType.Unconfined);
  assert.equal(contexts(ofPod).container().apparmor?.profileType, ProfileType.RuntimeDefault);
  const annotated = (value: string) => {
    const annotations = { "container.apparmor.security.beta.kubernetes.io/app": value };
    const pod = parsedPod({ containers: [{ name: "app", image: "example.com/app:1" }] }, { annotations });
    const [first] = pod.spec.containers;
    assert.ok(first);
    return containerSecurity({ uid: podUid("u"), source: "file", origin: "", pod }, first, {}, SETTINGS).apparmor;
  };
  assert.deepEqual(annotated("localhost/mine"), { profileType: ProfileType.Localhost, localhostRef: "mine" });
  assert.deepEqual(annotated("runtime/default"), { profileType: ProfileType.RuntimeDefault, localhostRef: "" });
  assert.deepEqual(annotated("unconfined"), { profileType: ProfileType.Unconfined, localhostRef: "" });
});

test("profiles that validation would not have let through are refused, in the kubelet's words where it has some", () => {
  const parsed = parsedPod({ containers: [{ name: "app", image: "example.com/app:1" }] });
  const [first] = parsed.spec.containers;
  assert.ok(first);
  const desired = { uid: podUid("u"), source: "file", origin: "", pod: parsed } as const;
  const refused = (securityContext: NonNullable<typeof first.securityContext>, message: RegExp): void => {
    assert.throws(() => containerSecurity(desired, { ...first, securityContext }, {}, SETTINGS), {
      code: "invalid",
      reason: "CreateContainerConfigError",
      message,
    });
  };
  refused(
    { seccompProfile: { type: "Localhost" } },
    /^localhostProfile must be set if seccompProfile type is Localhost\.$/,
  );
  for (const localhostProfile of ["../x.json", "a/../../profiles-2/x.json", ".."]) {
    refused({ seccompProfile: { type: "Localhost", localhostProfile } }, /must not lead out of the folder/);
  }
  refused({ appArmorProfile: { type: "Localhost" } }, /^missing localhost apparmor profile name$/);
});
