/** Volumes without content of their own: emptyDir on disk and in memory, hostPath; and parts of volumes: subPath. */
import assert from "node:assert/strict";
import type { V1PodSpec, V1Volume, V1VolumeMount } from "@kubernetes/client-node";
import { area, type ConformanceTest } from "../framework/conformance-test.ts";
import type { TestContext } from "../framework/test-context.ts";
import { restartsOf, statusOf } from "../framework/test-pod.ts";

const AT = "/test-volume";
const STAYS = "trap 'exit 0' TERM; sleep 100000 & wait";

function podWith(
  t: TestContext,
  volume: Omit<V1Volume, "name">,
  script: string,
  more: Partial<V1PodSpec> = {},
): V1PodSpec {
  const volumeMounts = [{ name: "v", mountPath: AT }];
  return { containers: [t.sh(script, { volumeMounts })], volumes: [{ name: "v", ...volume }], ...more };
}

const MEDIA = [
  ["default", {}],
  ["tmpfs", { medium: "Memory" }],
] as const;
const NON_ROOT = { securityContext: { runAsUser: 1001 } };

const emptyDir = area("[sig-storage] EmptyDir volumes", (should) => {
  for (const [medium, source] of MEDIA) {
    const volume = { emptyDir: { ...source } };
    const isTmpfs = medium === "tmpfs";

    should(`volume on ${isTmpfs ? "tmpfs" : "default medium"} should have the correct mode`, async (t) => {
      const output = await t.output(podWith(t, volume, `stat -c %a ${AT}; stat -f -c %T ${AT}`));
      assert.match(output, isTmpfs ? /^1?777\ntmpfs\n$/ : /^777\n/);
    });

    for (const [user, more] of [
      ["root", {}],
      ["non-root", NON_ROOT],
    ] as const) {
      for (const mode of ["0644", "0666", "0777"]) {
        should(`support (${user},${mode},${medium})`, async (t) => {
          const file = `${AT}/file`;
          const script = `umask 0; echo content > ${file} && chmod ${mode} ${file} && stat -c '%a %u' ${file} && cat ${file}`;
          const uid = user === "root" ? 0 : 1001;
          const output = await t.output(podWith(t, volume, script, more));
          assert.equal(output, `${mode.slice(1)} ${uid}\ncontent\n`);
        });
      }
    }

    should(`volume on ${medium} medium should have the correct mode using FSGroup`, async (t) => {
      const more = { securityContext: { runAsUser: 1001, fsGroup: 123 } };
      const script = `stat -c '%a %g' ${AT}; touch ${AT}/new; stat -c %g ${AT}/new`;
      // The sticky bit of a new tmpfs may stay.
      assert.match(await t.output(podWith(t, volume, script, more)), /^[23]777 123\n123\n$/);
    });
  }

  should("pod should support shared volumes between containers", async (t) => {
    const volumeMounts = [{ name: "v", mountPath: AT }];
    const pod = await t.start({
      containers: [
        t.sh(STAYS, { name: "reader", volumeMounts }),
        t.sh(`echo hello > ${AT}/shared; ${STAYS}`, { name: "writer", volumeMounts }),
      ],
      volumes: [{ name: "v", emptyDir: {} }],
    });
    await pod.running();
    assert.equal(await pod.shell(`until [ -s ${AT}/shared ]; do :; done; cat ${AT}/shared`, "reader"), "hello\n");
  });

  should("pod should support memory backed volumes of specified size", async (t) => {
    const volume = { emptyDir: { medium: "Memory", sizeLimit: "4Mi" } };
    const output = await t.output(podWith(t, volume, `df -k ${AT} | tail -1 | awk '{print $2}'`));
    assert.equal(output, "4096\n");
  });

  should("keep what is in it over a container's restart", async (t) => {
    const script = `[ -e ${AT}/f ] && { cat ${AT}/f; exit 0; }; echo kept > ${AT}/f; exit 1`;
    const pod = await t.start(podWith(t, { emptyDir: {} }, script, { restartPolicy: "OnFailure" }));
    await pod.succeeded();
    assert.equal(await pod.logs(), "kept\n");
  });

  should(
    "evict a pod that writes more than the size limit allows",
    async (t) => {
      const volume = { emptyDir: { sizeLimit: "1Mi" } };
      const script = `dd if=/dev/zero of=${AT}/big bs=1M count=5; while :; do sleep 1; done`;
      const pod = await t.start(podWith(t, volume, script));
      const { status } = await pod.phase("Failed");
      assert.equal(status?.reason, "Evicted");
      assert.match(status?.message ?? "", /Usage of EmptyDir volume "v" exceeds the limit "1Mi"/);
      await pod.event("Evicted", (event) => event.reason === "Evicted");
    },
    { limitSeconds: 180 },
  );
});

const wrappers = area("[sig-storage] EmptyDir wrapper volumes", (should) => {
  should("not conflict", async (t) => {
    const [secret, map] = [await t.secret({ s: "1" }), await t.configMap({ c: "2" })];
    const output = await t.output({
      containers: [
        t.sh("cat /s/s /c/c", {
          volumeMounts: [
            { name: "s", mountPath: "/s" },
            { name: "c", mountPath: "/c" },
          ],
        }),
      ],
      volumes: [
        { name: "s", secret: { secretName: secret } },
        { name: "c", configMap: { name: map } },
      ],
    });
    assert.equal(output, "12");
  });

  should(
    "not cause race condition when used for configmaps",
    async (t) => {
      const names = await Promise.all(Array.from({ length: 50 }, (_, at) => t.configMap({ at: `${at} ` })));
      const volumes = names.map((name) => ({ name, configMap: { name } }));
      const volumeMounts = names.map((name) => ({ name, mountPath: `/maps/${name}` }));
      const pods = Array.from({ length: 5 }, () =>
        t.start({ containers: [t.sh("cat /maps/*/at | wc -w", { volumeMounts })], volumes }),
      );
      for (const pod of await Promise.all(pods)) {
        await pod.succeeded();
        assert.equal(await pod.logs(), "50\n");
      }
    },
    { serial: true, limitSeconds: 180 },
  );
});

/** A folder of its own on the node, taken away by a pod when the test is over. */
async function onNode(t: TestContext, work: (path: string) => Promise<void>): Promise<void> {
  const path = `/tmp/${t.namespace}`;
  try {
    await work(path);
  } finally {
    const volumes = [{ name: "v", hostPath: { path: "/tmp" } }];
    const volumeMounts = [{ name: "v", mountPath: "/host" }];
    await t.output({ containers: [t.sh(`rm -rf /host/${t.namespace}`, { volumeMounts })], volumes });
  }
}

const hostPath = area("[sig-storage] HostPath", (should) => {
  should("give a volume the correct mode", async (t) => {
    assert.equal(await t.output(podWith(t, { hostPath: { path: "/tmp" } }, `stat -c %a ${AT}`)), "1777\n");
  });

  should("support r/w", async (t) => {
    await onNode(t, async (path) => {
      const volume = { hostPath: { path, type: "DirectoryOrCreate" } };
      await t.output(podWith(t, volume, `echo written > ${AT}/file`));
      assert.equal(await t.output(podWith(t, volume, `cat ${AT}/file; stat -c %a ${AT}`)), "written\n755\n");
    });
  });

  should("support subPath", async (t) => {
    await onNode(t, async (path) => {
      const volume = { hostPath: { path, type: "DirectoryOrCreate" } };
      const spec = podWith(t, volume, "echo part > /part/file");
      spec.containers[0]?.volumeMounts?.push({ name: "v", mountPath: "/part", subPath: "sub/path" });
      await t.output(spec);
      assert.equal(await t.output(podWith(t, volume, `cat ${AT}/sub/path/file`)), "part\n");
    });
  });

  for (const [type, there, message] of [
    ["Directory", undefined, "is not a directory"],
    ["File", "/tmp", "is not a file"],
    ["Socket", "/tmp", "is not a socket file"],
    ["CharDevice", "/tmp", "is not a character device"],
    ["BlockDevice", "/tmp", "is not a block device"],
  ] as const) {
    should(`refuse ${there === undefined ? "nothing" : "a folder"} where a ${type} is asked for`, async (t) => {
      const path = there ?? `/tmp/none-such-${t.namespace}`;
      const pod = await t.start(podWith(t, { hostPath: { path, type } }, "true"));
      const event = await pod.event("FailedMount", ({ reason }) => reason === "FailedMount");
      assert.match(event.message ?? "", new RegExp(`hostPath type check failed: ${path} ${message}`));
    });
  }

  should("make the file that FileOrCreate asks for, and take character devices", async (t) => {
    await onNode(t, async (path) => {
      const made = { hostPath: { path: `${path}-file`, type: "FileOrCreate" } };
      assert.equal(await t.output(podWith(t, made, `stat -c '%F %a' ${AT}`)), "regular empty file 644\n");
      const clean = podWith(t, { hostPath: { path: "/tmp" } }, `rm ${AT}/${t.namespace}-file`);
      await t.output(clean);
      const device = { hostPath: { path: "/dev/null", type: "CharDevice" } };
      assert.equal(await t.output(podWith(t, device, `stat -c %F ${AT}`)), "character special file\n");
    });
  });
});

const KEY = "configmap-key";

const subpath = area("[sig-storage] Subpath Atomic writer volumes", (should) => {
  const reads = async (
    t: TestContext,
    volume: Omit<V1Volume, "name">,
    subPath: string,
    mountPath = "/probe/file",
  ): Promise<string> => {
    const volumeMounts: V1VolumeMount[] = [{ name: "v", mountPath, subPath }];
    const volumes = [{ name: "v", ...volume }];
    return await t.output({ containers: [t.sh(`cat ${mountPath}`, { volumeMounts })], volumes }, { name: "subpath" });
  };

  should("support subpaths with secret pod", async (t) => {
    const secretName = await t.secret({ "secret-key": "secret-value" });
    assert.equal(await reads(t, { secret: { secretName } }, "secret-key"), "secret-value");
  });

  should("support subpaths with configmap pod", async (t) => {
    const name = await t.configMap({ [KEY]: "configmap-value" });
    assert.equal(await reads(t, { configMap: { name } }, KEY), "configmap-value");
  });

  should("support subpaths with configmap pod with mountPath of existing file", async (t) => {
    const name = await t.configMap({ [KEY]: "configmap-value" });
    assert.equal(await reads(t, { configMap: { name } }, KEY, "/etc/resolv.conf"), "configmap-value");
  });

  should("support subpaths with downward pod", async (t) => {
    const items = [{ path: "downward/podname", fieldRef: { fieldPath: "metadata.name" } }];
    assert.equal(await reads(t, { downwardAPI: { items } }, "downward/podname"), "subpath");
  });

  should("support subpaths with projected pod", async (t) => {
    const name = await t.configMap({ [KEY]: "configmap-value" });
    const sources = [{ configMap: { name, items: [{ key: KEY, path: `projected/${KEY}` }] } }];
    assert.equal(await reads(t, { projected: { sources } }, `projected/${KEY}`), "configmap-value");
  });

  should(
    "verify that container can restart successfully after configmaps modified",
    async (t) => {
      const name = await t.configMap({ [KEY]: "before" });
      const pod = await t.start({
        restartPolicy: "Always",
        containers: [
          t.sh(`cat /etc/part; echo; ${STAYS}`, {
            volumeMounts: [{ name: "v", mountPath: "/etc/part", subPath: KEY }],
          }),
          t.sh(`cat /whole/${KEY}; ${STAYS}`, { name: "whole", volumeMounts: [{ name: "v", mountPath: "/whole" }] }),
        ],
        volumes: [{ name: "v", configMap: { name } }],
      });
      await pod.running();
      await t.patch("configmaps", name, { data: { [KEY]: "after" } });
      await pod.shell(`until [ "$(cat /whole/${KEY})" = after ]; do sleep 0.1; done`, "whole");
      assert.equal(await pod.shell("cat /etc/part"), "before", "a subPath does not follow updates");
      await pod.exec(["/bin/sh", "-c", "kill 1"], "test");
      await pod.until(
        "a restart",
        (each) => restartsOf(each, "test") === 1 && !!statusOf(each, "test")?.state?.running,
      );
      await pod.logged("after", "test");
    },
    { limitSeconds: 180 },
  );

  should("refuse a subPath that leads out through a link", async (t) => {
    const volumes = [{ name: "v", emptyDir: {} }];
    const init = t.sh(`ln -s /etc ${AT}/link`, { name: "init", volumeMounts: [{ name: "v", mountPath: AT }] });
    const main = t.sh("ls /out", { volumeMounts: [{ name: "v", mountPath: "/out", subPath: "link" }] });
    const pod = await t.start({ initContainers: [init], containers: [main], volumes });
    const stuck = await pod.until("CreateContainerConfigError", (each) => {
      return statusOf(each)?.state?.waiting?.reason === "CreateContainerConfigError";
    });
    assert.match(
      statusOf(stuck)?.state?.waiting?.message ?? "",
      /failed to prepare subPath for volumeMount "v" of container "test"/,
    );
  });

  should("mount a volume read-only where it is asked for", async (t) => {
    const volumes = [{ name: "v", emptyDir: {} }];
    const volumeMounts = [
      { name: "v", mountPath: "/rw" },
      { name: "v", mountPath: "/ro", readOnly: true },
    ];
    const script = "echo 1 > /rw/f; cat /ro/f; touch /ro/g 2>/dev/null || echo refused";
    assert.equal(await t.output({ containers: [t.sh(script, { volumeMounts })], volumes }), "1\nrefused\n");
  });
});

export const scratchVolumeTests: readonly ConformanceTest[] = [...emptyDir, ...wrappers, ...hostPath, ...subpath];
