/** Volumes of files that come from the API: ConfigMap, Secret and downward API, each by itself and projected. */
import assert from "node:assert/strict";
import type { V1Container, V1KeyToPath, V1PodSpec, V1Volume } from "@kubernetes/client-node";
import { area, type ConformanceTest, type Should } from "../framework/conformance-test.ts";
import { ApiError } from "../framework/kube-api.ts";
import type { TestContext } from "../framework/test-context.ts";
import { conditionOf } from "../framework/test-pod.ts";

/** A kubelet checks volumes once a minute, and may have checked them just before. */
const UPDATE_LIMIT_SECONDS = 200;

interface Options {
  readonly items?: V1KeyToPath[];
  readonly defaultMode?: number;
  readonly optional?: boolean;
}

/** A kind of volume made of an object's keys, so that the same is asked of all four. */
interface Kind {
  readonly title: string;
  readonly plural: "configmaps" | "secrets";
  readonly make: (t: TestContext, data: Readonly<Record<string, string>>, name?: string) => Promise<string>;
  readonly volume: (name: string, options?: Options) => Omit<V1Volume, "name">;
  /** The words in which its tests' names differ from Kubernetes' own. */
  readonly multiple: string;
}

const named = (name: string | undefined) => (name === undefined ? {} : { metadata: { name } });
const makeConfigMap: Kind["make"] = (t, data, name) => t.configMap(data, named(name));
const makeSecret: Kind["make"] = (t, data, name) => t.secret(data, named(name));

const KINDS: readonly Kind[] = [
  {
    title: "[sig-storage] ConfigMap",
    plural: "configmaps",
    make: makeConfigMap,
    volume: (name, options) => ({ configMap: { name, ...options } }),
    multiple: "be consumable in multiple volumes in the same pod",
  },
  {
    title: "[sig-storage] Projected configMap",
    plural: "configmaps",
    make: makeConfigMap,
    volume: (name, { defaultMode, ...options } = {}) => ({
      projected: {
        ...(defaultMode === undefined ? {} : { defaultMode }),
        sources: [{ configMap: { name, ...options } }],
      },
    }),
    multiple: "be consumable in multiple volumes in the same pod",
  },
  {
    title: "[sig-storage] Secrets",
    plural: "secrets",
    make: makeSecret,
    volume: (secretName, options) => ({ secret: { secretName, ...options } }),
    multiple: "be consumable in multiple volumes in a pod",
  },
  {
    title: "[sig-storage] Projected secret",
    plural: "secrets",
    make: makeSecret,
    volume: (name, { defaultMode, ...options } = {}) => ({
      projected: { ...(defaultMode === undefined ? {} : { defaultMode }), sources: [{ secret: { name, ...options } }] },
    }),
    multiple: "be consumable in multiple volumes in a pod",
  },
];

const FOLDER = "/etc/payload";
const mount = { name: "payload", mountPath: FOLDER, readOnly: true };
const SHOWS = `cat ${FOLDER}/data-1; stat -L -c ' %a %u %g' ${FOLDER}/data-1`;

function podWith(
  t: TestContext,
  volume: Omit<V1Volume, "name">,
  script: string,
  more: Partial<V1PodSpec> = {},
): V1PodSpec {
  return {
    containers: [t.sh(script, { volumeMounts: [mount] })],
    volumes: [{ name: "payload", ...volume }],
    ...more,
  };
}

const STAYS = "trap 'exit 0' TERM; while :; do sleep 0.2; done";
/** Prints what the files say whenever one of them has changed. */
const FOLLOWS = `trap 'exit 0' TERM; while :; do now=$(cd ${FOLDER}; for f in $(ls); do echo "$f=$(cat $f)"; done); [ "$now" = "$old" ] || echo "now [" $now "]"; old=$now; sleep 0.2; done`;

function consumption(kind: Kind, should: Should): void {
  const { make, volume } = kind;
  const nonRoot = { securityContext: { runAsUser: 1000 } };

  should("be consumable from pods in volume", async (t) => {
    const name = await make(t, { "data-1": "value-1" });
    assert.equal(await t.output(podWith(t, volume(name), SHOWS)), "value-1 644 0 0\n");
  });

  should("be consumable from pods in volume with defaultMode set", async (t) => {
    const name = await make(t, { "data-1": "value-1" });
    assert.equal(await t.output(podWith(t, volume(name, { defaultMode: 0o400 }), SHOWS)), "value-1 400 0 0\n");
  });

  should("be consumable from pods in volume as non-root", async (t) => {
    const name = await make(t, { "data-1": "value-1" });
    assert.equal(await t.output(podWith(t, volume(name), SHOWS, nonRoot)), "value-1 644 0 0\n");
  });

  should("be consumable from pods in volume as non-root with defaultMode and fsGroup set", async (t) => {
    const name = await make(t, { "data-1": "value-1" });
    const spec = podWith(t, volume(name, { defaultMode: 0o440 }), SHOWS, {
      securityContext: { runAsUser: 1000, fsGroup: 1001 },
    });
    assert.equal(await t.output(spec), "value-1 440 0 1001\n");
  });

  const items = [{ key: "data-2", path: "path/to/data-2" }];
  const script = `cat ${FOLDER}/path/to/data-2; ls ${FOLDER}; stat -L -c %a ${FOLDER}/path/to/data-2`;

  should("be consumable from pods in volume with mappings", async (t) => {
    const name = await make(t, { "data-1": "value-1", "data-2": "value-2\n" });
    assert.equal(await t.output(podWith(t, volume(name, { items }), script)), "value-2\npath\n644\n");
  });

  should("be consumable from pods in volume with mappings and Item mode set", async (t) => {
    const name = await make(t, { "data-2": "value-2\n" });
    const withMode = items.map((item) => ({ ...item, mode: 0o400 }));
    assert.equal(await t.output(podWith(t, volume(name, { items: withMode }), script)), "value-2\npath\n400\n");
  });

  should("be consumable from pods in volume with mappings as non-root", async (t) => {
    const name = await make(t, { "data-2": "value-2\n" });
    assert.equal(await t.output(podWith(t, volume(name, { items }), script, nonRoot)), "value-2\npath\n644\n");
  });

  should(kind.multiple, async (t) => {
    const name = await make(t, { "data-1": "value-1" });
    const volumeMounts = [mount, { name: "again", mountPath: "/etc/again", readOnly: true }];
    const output = await t.output({
      containers: [t.sh(`cat ${FOLDER}/data-1 /etc/again/data-1`, { volumeMounts })],
      volumes: [
        { name: "payload", ...volume(name) },
        { name: "again", ...volume(name) },
      ],
    });
    assert.equal(output, "value-1value-1");
  });
}

function updates(kind: Kind, should: Should): void {
  const { make, volume, plural } = kind;
  const encoded = (text: string) => (plural === "secrets" ? Buffer.from(text).toString("base64") : text);
  const limit = { limitSeconds: UPDATE_LIMIT_SECONDS };

  should(
    "see updates be reflected in volume",
    async (t) => {
      const name = await make(t, { "data-1": "value-1" });
      const pod = await t.start(podWith(t, volume(name), FOLLOWS));
      await pod.logged("now [ data-1=value-1 ]");
      await t.patch(plural, name, { data: { "data-1": encoded("value-2"), more: encoded("3") } });
      const log = await pod.logged("now [ data-1=value-2 more=3 ]");
      assert.doesNotMatch(log, /value-1 more/, "a reader saw half of an update");
    },
    limit,
  );

  should(
    "see optional updates be reflected in volume",
    async (t) => {
      const deleted = await make(t, { "data-1": "value-1" });
      const updated = await make(t, { "data-1": "value-1" });
      const later = t.name("later");
      const all = { deleted, updated, later };
      const volumeMounts = Object.keys(all).map((each) => ({ name: each, mountPath: `/v/${each}` }));
      const volumes = Object.entries(all).map(([each, name]) => ({ name: each, ...volume(name, { optional: true }) }));
      // By the shell, which names links that lead nowhere too.
      const script = FOLLOWS.replace(FOLDER, "/v").replace("$(ls)", "*/*");
      const pod = await t.start({ containers: [t.sh(script, { volumeMounts })], volumes });
      await pod.logged("now [ deleted/data-1=value-1 updated/data-1=value-1 ]");
      await t.delete(plural, deleted);
      await t.patch(plural, updated, { data: { "data-1": null, "data-3": encoded("value-3") } });
      await make(t, { "data-1": "value-1" }, later);
      await pod.logged("now [ later/data-1=value-1 updated/data-3=value-3 ]");
    },
    limit,
  );

  should(
    `fail non-optional pod creation due to ${plural === "secrets" ? "secret" : "configMap"} object does not exist`,
    async (t) => {
      const pod = await t.start(podWith(t, volume("missing"), "true"));
      const { message } = await pod.event("FailedMount", ({ reason }) => reason === "FailedMount");
      const object = plural === "secrets" ? "secret" : "configmap";
      assert.match(
        message ?? "",
        new RegExp(`MountVolume.SetUp failed for volume "payload" : ${object} "missing" not found`),
      );
      assert.equal(pod.latest?.status?.phase, "Pending");
      await make(t, { "data-1": "value-1" }, "missing");
      await pod.succeeded();
    },
    limit,
  );

  should(
    `fail non-optional pod creation due to the key in the ${plural === "secrets" ? "secret" : "configMap"} object does not exist`,
    async (t) => {
      const name = await make(t, { "data-1": "value-1" });
      const pod = await t.start(podWith(t, volume(name, { items: [{ key: "no", path: "no" }] }), "true"));
      const { message } = await pod.event("FailedMount", ({ reason }) => reason === "FailedMount");
      const what = plural === "secrets" ? "references non-existent secret" : "configmap references non-existent config";
      const start = 'MountVolume.SetUp failed for volume "payload" : ';
      assert.equal(message, `${start}${what} key: no`);
    },
    limit,
  );
}

function special(kind: Kind, should: Should): void {
  const { make, volume, plural } = kind;
  if (kind.title === "[sig-storage] ConfigMap") {
    should("see binary data be reflected in volume", async (t) => {
      const bytes = Buffer.from([0xff, 0xfe, 0x00, 0x0a, 0x80]);
      await t.create("configmaps", {
        metadata: { name: "binary" },
        data: { text: "value" },
        binaryData: { bytes: bytes.toString("base64") },
      });
      const script = `cat ${FOLDER}/text; xxd -p ${FOLDER}/bytes`;
      assert.equal(await t.output(podWith(t, volume("binary"), script)), `value${bytes.toString("hex")}\n`);
    });
  }
  if (kind.title.includes("Projected")) return;

  should("be immutable if `immutable` field is set", async (t) => {
    const name = await make(t, { a: "1" });
    await t.patch(plural, name, { data: { a: "Mg==" } });
    await t.patch(plural, name, { immutable: true });
    const isInvalid = (error: unknown) => error instanceof ApiError && error.code === 422;
    await assert.rejects(t.patch(plural, name, { data: { a: "Mw==" } }), isInvalid);
    await assert.rejects(t.patch(plural, name, { immutable: false }), isInvalid);
    await t.patch(plural, name, { metadata: { labels: { still: "allowed" } } });
    await t.delete(plural, name);
  });
}

/** The other namespace is one that is always there. */
const ELSEWHERE = "/api/v1/namespaces/default/secrets";

function otherNamespace(kind: Kind, should: Should): void {
  if (kind.plural !== "secrets") return;
  should(
    "be able to mount in a volume regardless of a different secret existing with same name in different namespace",
    async (t) => {
      const name = await kind.make(t, { "data-1": "mine" }, `${t.namespace}-secret`);
      await t.api.call("POST", ELSEWHERE, { metadata: { name }, stringData: { "data-1": "theirs" } });
      t.defer(() => t.api.call("DELETE", `${ELSEWHERE}/${name}`));
      assert.equal(await t.output(podWith(t, kind.volume(name), SHOWS)), "mine 644 0 0\n");
    },
  );
}

const byKind = KINDS.flatMap((kind) =>
  area(kind.title, (should) => {
    consumption(kind, should);
    updates(kind, should);
    special(kind, should);
    otherNamespace(kind, should);
  }),
);

type DownwardSource = Omit<NonNullable<V1Volume["downwardAPI"]>, "sources">;

const DOWNWARD = [
  ["[sig-storage] Downward API volume", (downwardAPI: DownwardSource) => ({ downwardAPI })],
  [
    "[sig-storage] Projected downwardAPI",
    ({ defaultMode, ...source }: DownwardSource) => ({
      projected: { ...(defaultMode === undefined ? {} : { defaultMode }), sources: [{ downwardAPI: source }] },
    }),
  ],
] as const;

const resourceItem = (resource: string) => ({
  path: resource,
  resourceFieldRef: { containerName: "test", resource },
});
const RESOURCES = { requests: { cpu: "250m", memory: "32Mi" }, limits: { cpu: "1250m", memory: "64Mi" } };

const downward = DOWNWARD.flatMap(([title, volume]) =>
  area(title, (should) => {
    const podName = [{ path: "data-1", fieldRef: { fieldPath: "metadata.name" } }];
    const shown = async (t: TestContext, source: DownwardSource, script: string, more: Partial<V1Container> = {}) => {
      const spec = podWith(t, volume(source), script);
      const [container] = spec.containers;
      if (container !== undefined) Object.assign(container, more);
      return await t.output(spec, { name: "shown" });
    };

    should("provide podname only", async (t) => {
      assert.equal(await shown(t, { items: podName }, SHOWS), "shown 644 0 0\n");
    });

    should("set DefaultMode on files", async (t) => {
      assert.equal(await shown(t, { items: podName, defaultMode: 0o400 }, SHOWS), "shown 400 0 0\n");
    });

    should("set mode on item file", async (t) => {
      const items = podName.map((item) => ({ ...item, mode: 0o400 }));
      assert.equal(await shown(t, { items }, SHOWS), "shown 400 0 0\n");
    });

    should("provide podname as non-root with fsgroup and defaultMode", async (t) => {
      const spec = podWith(t, volume({ items: podName, defaultMode: 0o440 }), SHOWS, {
        securityContext: { runAsUser: 1000, fsGroup: 1234 },
      });
      assert.equal(await t.output(spec, { name: "shown" }), "shown 440 0 1234\n");
    });

    for (const what of ["labels", "annotations"] as const) {
      should(
        `update ${what} on modification`,
        async (t) => {
          const items = [{ path: what, fieldRef: { fieldPath: `metadata.${what}` } }];
          const metadata = { [what]: { key1: "value1", key2: "value2" } };
          const pod = await t.start(podWith(t, volume({ items }), FOLLOWS), metadata);
          const before = await pod.logged('key2="value2"');
          assert.match(before, /key1="value1" key2="value2"/);
          await pod.patch({ metadata: { [what]: { key3: "value3" } } });
          await pod.logged('key3="value3"');
        },
        { limitSeconds: UPDATE_LIMIT_SECONDS },
      );
    }

    for (const [what, resource, expected] of [
      ["cpu limit", "limits.cpu", "2"],
      ["memory limit", "limits.memory", "67108864"],
      ["cpu request", "requests.cpu", "1"],
      ["memory request", "requests.memory", "33554432"],
    ] as const) {
      should(`provide container's ${what}`, async (t) => {
        const items = [resourceItem(resource)];
        assert.equal(await shown(t, { items }, `cat ${FOLDER}/${resource}`, { resources: RESOURCES }), expected);
      });
    }

    for (const resource of ["cpu", "memory"]) {
      should(
        `provide node allocatable (${resource}) as default ${resource} limit if the limit is not set`,
        async (t) => {
          const items = [resourceItem(`limits.${resource}`)];
          assert.match(await shown(t, { items }, `cat ${FOLDER}/limits.${resource}`), /^[1-9]\d*$/);
        },
      );
    }
  }),
);

const combined = area("[sig-storage] Projected combined", (should) => {
  should("project all components that make up the projection API", async (t) => {
    const [map, secret] = [await t.configMap({ c: "from map" }), await t.secret({ s: "from secret" })];
    const sources = [
      { configMap: { name: map, items: [{ key: "c", path: "all/c" }] } },
      { secret: { name: secret, items: [{ key: "s", path: "all/s" }] } },
      { downwardAPI: { items: [{ path: "all/podname", fieldRef: { fieldPath: "metadata.name" } }] } },
    ];
    const script = `cd ${FOLDER}/all; ls; cat podname c s`;
    const output = await t.output(podWith(t, { projected: { sources } }, script), { name: "combined" });
    assert.equal(output, "c\npodname\ns\ncombinedfrom mapfrom secret");
  });

  for (const [what, securityContext, owned] of [
    ["readable by all", {}, "644 0 0"],
    ["of the pod's only user alone", { runAsUser: 1000 }, "600 1000 0"],
    ["of the pod's group", { fsGroup: 1234 }, "640 0 1234"],
  ] as const) {
    should(`project a service account token for an audience, ${what}`, async (t) => {
      const sources = [{ serviceAccountToken: { path: "token", audience: "board", expirationSeconds: 600 } }];
      const script = `cut -d. -f2 ${FOLDER}/token; stat -L -c '%a %u %g' ${FOLDER}/token`;
      const output = await t.output(podWith(t, { projected: { sources } }, script, { securityContext }));
      const [payload = "", mode] = output.split("\n");
      const claims = JSON.parse(Buffer.from(payload, "base64url").toString()) as { aud: unknown; sub: unknown };
      assert.deepEqual(claims.aud, ["board"]);
      assert.equal(claims.sub, `system:serviceaccount:${t.namespace}:default`);
      assert.equal(mode, owned);
    });
  }

  should("mount an API token into pods", async (t) => {
    const folder = "/var/run/secrets/kubernetes.io/serviceaccount";
    const pod = await t.start({
      automountServiceAccountToken: true,
      containers: [t.sh(`cat ${folder}/namespace; test -s ${folder}/token && grep -c BEGIN ${folder}/ca.crt`)],
    });
    await pod.succeeded();
    assert.equal(await pod.logs(), `${t.namespace}1\n`);
  });

  should("keep a pod waiting whose volume refers to nothing, and say so in its conditions", async (t) => {
    const pod = await t.start(podWith(t, { projected: { sources: [{ secret: { name: "late" } }] } }, STAYS));
    await pod.event("FailedMount", ({ reason }) => reason === "FailedMount");
    await pod.until("its conditions", (each) => conditionOf(each, "ContainersReady") === "False");
    await t.secret({ a: "1" }, { metadata: { name: "late" } });
    await pod.running();
  });
});

export const payloadVolumeTests: readonly ConformanceTest[] = [...byKind, ...downward, ...combined];
