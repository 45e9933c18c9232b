/**
 * The pages in a real Chromium: a real agent's, on its own port and through a real hub, and the fleet's at that hub and
 * with 10,000 boards. Everything that a board says may be an attacker's text.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { PodsByName } from "@picolet/scripts/start/follow-pods.ts";
import type { Page } from "playwright-core";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { componentPod, edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Fleet } from "../../support/hub/test-fleet.ts";
import { Browser, browserMissing } from "../../support/page/browser.ts";
import { boardName, FLEET_TOKEN, FleetPages } from "../../support/page/fleet-pages.ts";
import { PAGE_CONFIG, pagePort, writeHistory } from "../../support/page/paged-node.ts";
import { testComponent } from "../../support/wasm/components.ts";

const SCRIPT = "picolet.example/script:1";
const BOARD = "board-a";
const VIEWER = "viewer";
const OPERATOR = "operator";
const CHANGER = "changer";
/** Would call the page's `hacked` wherever it became markup, a script or an address. */
const HOSTILE =
  '"><img src=x onerror=hacked()><script>hacked()</script><svg/onload=hacked()>\u202e\u001b[31mjavascript:hacked()' +
  "'-hacked()-'{{hacked()}}</textarea></style>";
/** The escape of a terminal, and one that turns the direction of text. */
const CONTROLS = ["\u001b", "\u202e"];
const skip = browserMissing;

let fleet: Fleet;
let node: AgentNode;
let browser: Browser;
let page: Page;

const boardUrl = (): string => `http://127.0.0.1:${pagePort(node)}/page/`;

function fleetUrl(): string {
  const port = fleet.log.map((line) => /listens.*fleet's page.*port"?[=:](\d+)/.exec(line)?.[1]).find((each) => each);
  return `https://127.0.0.1:${port}/page/`;
}

/** A service account that a ClusterRole allows `rules`. @returns its token */
async function userWith(name: string, rules: readonly unknown[]): Promise<string> {
  const rbac = "rbac.authorization.k8s.io";
  const subjects = [{ kind: "ServiceAccount", name, namespace: "default" }];
  await fleet.apply({
    apiVersion: "v1",
    kind: "List",
    items: [
      { apiVersion: "v1", kind: "ServiceAccount", metadata: { name, namespace: "default" } },
      { apiVersion: `${rbac}/v1`, kind: "ClusterRole", metadata: { name }, rules },
      {
        apiVersion: `${rbac}/v1`,
        kind: "ClusterRoleBinding",
        metadata: { name },
        roleRef: { apiGroup: rbac, kind: "ClusterRole", name },
        subjects,
      },
    ],
  });
  return (await fleet.kubectl(["create", "token", name])).trim();
}

const LIST_NODES = { apiGroups: [""], resources: ["nodes"], verbs: ["list"] };
const READ_PAGES = { apiGroups: [""], resources: ["nodes/page"], verbs: ["get"] };

const DELETE_PODS = { apiGroups: [""], resources: ["pods"], verbs: ["delete"] };

before(async () => {
  if (skip !== false) return;
  fleet = await Fleet.start(["--page-address", "127.0.0.1:0"]);
  node = nodeWith(undefined, { config: { nodeName: BOARD, hub: await fleet.joinConfig(), ...PAGE_CONFIG } });
  writeHistory(node);
  await node.start();
  edgectl(node, "image", "import", await testComponent("script.c"), "--name", SCRIPT);
  const loud = {
    image: SCRIPT,
    args: ["say", HOSTILE, "say", "a plain line", "hold"],
    env: [{ name: "KEY", value: "s3cret" }],
  };
  node.writeManifest("loud.yaml", componentPod("loud", loud));
  node.writeManifest(`bad ${HOSTILE.replaceAll("/", "")}.yaml`, `{kind: ${JSON.stringify(HOSTILE)}, apiVersion: v1}`);
  node.writeManifest("lost.yaml", componentPod("lost", { image: "picolet.example/none:1", imagePullPolicy: "Never" }));
  browser = await Browser.start();
  ({ page } = browser);
  await fleet.untilNodeReady(BOARD);
  await node.waitForPods("the loud pod", (pods) => pods.get(`loud-${BOARD}`)?.status?.phase === "Running");
});

after(async () => {
  await using all = new AsyncDisposableStack();
  for (const each of [fleet, node, browser]) if (each !== undefined) all.use(each);
});

/** Nothing has run, nothing was cut off, axe-core finds nothing, and no other host was asked. */
async function assertSound(what: string): Promise<void> {
  for (const screen of ["desk", "phone"] as const) {
    for (const scheme of ["light", "dark"] as const) {
      await browser.show(screen, scheme);
      assert.equal(await browser.isCutOff(), false, `${what} is wider than a ${screen}`);
      // Colours differ by scheme, sizes by screen.
      if ((screen === "phone") === (scheme === "dark")) assert.deepEqual(await browser.accessibilityFaults(), [], what);
    }
  }
  assert.equal(await page.evaluate("globalThis.hacked ?? 0"), 0);
}

/** The elements that markup of a text would have made. */
const foreignElements = (): Promise<number> =>
  page.locator("main img, main script, main iframe, main style, main a[href^='javascript'], main [onload]").count();

test("a board's page shows the node, its pods, events and history, and needs no other host", { skip }, async () => {
  await page.addInitScript("globalThis.hacked = 0");
  await page.goto(boardUrl());
  await page.getByRole("heading", { level: 1, name: BOARD }).waitFor();
  await page.getByText("1 of 2 pods well").waitFor();
  await page.getByRole("img", { name: /^Memory in use, the last 24 hours: now \d/ }).waitFor();
  await page
    .getByText(/memory\.available < 100Mi/)
    .first()
    .waitFor();
  await page.getByText("ErrImageNeverPull").first().waitFor();
  await page.getByText("connected for").waitFor();
  await assertSound("the board's page");
  assert.deepEqual([...browser.hosts], [new URL(boardUrl()).host]);
  assert.deepEqual(browser.complaints, []);
});

test("a log comes as it is written, by the keyboard alone, and is text", { skip }, async () => {
  await browser.show("desk", "light");
  await page.goto(boardUrl());
  await page.getByText("1 of 2 pods well").waitFor();
  const focused = async (): Promise<string> =>
    await page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent");
  const press = async (fits: (name: string) => boolean): Promise<void> => {
    for (let presses = 0; presses < 60; presses += 1) {
      await page.keyboard.press("Tab");
      if (fits(await focused())) return;
    }
    assert.fail("the Tab key does not lead there");
  };
  await press((name) => name === "To the content");
  await press((name) => name === "Disk");
  await press((name) => name.startsWith(`loud-${BOARD}`));
  await page.keyboard.press("Enter");
  await press((name) => name === "Log of app");
  await page.keyboard.press("Enter");
  const log = page.getByRole("log");
  await log.getByText("a plain line").waitFor();
  const text = (await log.textContent()) ?? "";
  assert.ok(text.includes("<script>hacked()</script>"), text);
  assert.equal(
    CONTROLS.some((each) => text.includes(each)),
    false,
  );
  await press((name) => name === "Log");
  await page.keyboard.press("Shift+Tab");
  assert.equal(await focused(), "Close the log");
  await page.keyboard.press("Enter");
  assert.equal(await focused(), "Log of app");
  assert.equal(await foreignElements(), 0);
});

test("whatever the board says is text", { skip }, async () => {
  const spoil = (value: unknown): unknown => {
    if (typeof value === "string") return /^\d{4}-\d\d-\d\dT/.test(value) ? value : `${value}${HOSTILE}`;
    if (Array.isArray(value)) return value.map(spoil);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, spoil(each)]));
  };
  const spoiled: string[] = [];
  await using _ = { [Symbol.asyncDispose]: () => page.unrouteAll({ behavior: "ignoreErrors" }) };
  await page.route("**/page/data/**", async (route) => {
    const { pathname, search } = new URL(route.request().url());
    if (search.includes("watch=true")) return await route.fulfill({ body: "" });
    const answer = await route.fetch();
    spoiled.push(pathname);
    await route.fulfill({ json: spoil(await answer.json()) });
  });
  await page.goto(boardUrl());
  await page.getByRole("heading", { level: 1, name: /<script>hacked\(\)/ }).waitFor();
  await page.getByRole("listitem").filter({ hasText: "ErrImageNeverPull" }).first().waitFor();
  await page.getByRole("rowheader", { name: /^picolet\.example\/script:1.*<script>/ }).waitFor();
  assert.deepEqual([...new Set(spoiled.map((path) => path.slice("/page/data/".length)))].sort(), [
    ...["events", "history", "images", "pods", "status", "summary", "thresholds"],
  ]);
  assert.equal(await foreignElements(), 0);
  await assertSound("a page of hostile texts");
  const shown = (await page.locator("main").textContent()) ?? "";
  assert.equal(
    CONTROLS.some((each) => shown.includes(each)),
    false,
  );
});

test("nothing of a pod's environment or specification is given out", { skip }, async () => {
  for (const path of ["pods", "status", "events", "summary"]) {
    const answer = await fetch(`${boardUrl()}data/${path}`);
    assert.equal(answer.status, 200);
    assert.doesNotMatch(await answer.text(), /s3cret/);
  }
  for (const path of ["config", "namespaces/default/pods", "keyvalue", "..%2fconfig", "pods/default/loud"])
    assert.equal((await fetch(`${boardUrl()}data/${path}`)).status, 404, path);
});

test("kubectl reaches the page through the hub, whose own files it has", { skip }, async () => {
  const raw = (path: string) => fleet.kubectl(["get", "--raw", `/api/v1/nodes/${BOARD}/proxy/page/${path}`]);
  assert.match(await raw(""), /<title>picolet board/);
  const { items } = JSON.parse(await raw("data/pods")) as { items: { name: string }[] };
  assert.ok(items.some(({ name }) => name === `loud-${BOARD}`));
  assert.match(await raw(`data/log/default/loud-${BOARD}?tailLines=1`), /a plain line/);
  const refused = await fleet.tryKubectl(["get", "--raw", `/api/v1/nodes/${BOARD}/proxy/page/nothing.js`]);
  assert.notEqual(refused.code, 0);
});

test("the fleet's page leads into a board, as far as the user's rights go", { skip }, async () => {
  const viewer = await userWith(VIEWER, [LIST_NODES]);
  const operator = await userWith(OPERATOR, [LIST_NODES, READ_PAGES]);
  browser.complaints.length = 0;
  await browser.show("desk", "dark");
  const signIn = async (token: string): Promise<void> => {
    await page.getByLabel("Token").fill(token);
    await page.keyboard.press("Enter");
  };
  await page.goto(fleetUrl());
  await signIn("wrong");
  await page.getByText("The hub does not know this token.").waitFor();
  await signIn(viewer);
  await page.getByRole("link", { name: new RegExp(`${BOARD}.*Ready`) }).click();
  await page.getByText(/The board does not answer: Forbidden/).waitFor();
  // A reload forgets the token.
  await page.reload();
  await page.getByLabel("Token").waitFor();
  assert.deepEqual(await page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]"), [0, 0, ""]);
  await page.goto(fleetUrl());
  await signIn(operator);
  await page.getByText("You may not read them").waitFor();
  await page.getByRole("link", { name: new RegExp(BOARD) }).click();
  await page.getByText("1 of 2 pods well").waitFor();
  await page.getByText(`loud-${BOARD}`, { exact: true }).click();
  await page.getByRole("button", { name: "Log of app" }).first().click();
  await page.getByRole("log").getByText("a plain line").waitFor();
  await assertSound("a board's page at the hub");
  assert.equal(await foreignElements(), 0);
  await page.getByRole("link", { name: "← All boards" }).click();
  await page.getByRole("heading", { level: 1, name: "Fleet" }).waitFor();
});

test("a user with the right restarts and deletes a pod; another is refused", { skip }, async () => {
  const changer = await userWith(CHANGER, [LIST_NODES, READ_PAGES, DELETE_PODS]);
  const reader = (await fleet.kubectl(["create", "token", OPERATOR])).trim();
  const spare = componentPod("spare", { image: SCRIPT, args: ["hold"], imagePullPolicy: "Never" }) as { spec: object };
  await fleet.apply({ ...spare, spec: { ...spare.spec, nodeName: BOARD } });
  await node.waitForPods("the spare pod", (pods) => pods.get("spare")?.status?.phase === "Running");
  browser.complaints.length = 0;
  await browser.show("desk", "light");
  const signIn = async (token: string): Promise<void> => {
    await page.getByLabel("Token").fill(token);
    await page.keyboard.press("Enter");
  };
  const change = async (verb: "Restart" | "Delete", pod: string): Promise<void> => {
    await page.getByText(pod, { exact: true }).click();
    await page.getByRole("button", { name: `${verb} ${pod}` }).press("Enter");
    await page.getByRole("dialog", { name: `${verb} default/${pod}?` }).waitFor();
  };
  const boardOf = async (token: string): Promise<void> => {
    // A reload forgets the token before.
    await page.goto("about:blank");
    await page.goto(fleetUrl());
    await signIn(token);
    await page.getByRole("link", { name: new RegExp(BOARD) }).click();
    await page.getByText("2 of 3 pods well").waitFor();
  };
  await boardOf(reader);
  await change("Delete", "spare");
  // Nothing happens without the user's word.
  await page.keyboard.press("Escape");
  assert.equal(await page.getByRole("dialog").count(), 0);
  await page.getByRole("button", { name: "Delete spare" }).press("Enter");
  await assertSound("the question before a deletion");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  const refusal = new RegExp(
    `Forbidden \\(user=system:serviceaccount:default:${OPERATOR} may not restart or delete pods`,
  );
  await page.getByRole("status").getByText(refusal).waitFor();
  await boardOf(changer);
  await change("Restart", `loud-${BOARD}`);
  await page.getByRole("dialog").getByRole("button", { name: "Restart" }).click();
  await page.getByText(`pod/default/loud-${BOARD} is restarting`).waitFor();
  await page.getByText(`as was asked for on the board by system:serviceaccount:default:${CHANGER}`).waitFor();
  // The board's own page, where reading needs no token.
  await page.goto(boardUrl());
  await page.getByText("spare", { exact: true }).click();
  await page.getByRole("button", { name: "Log of app" }).first().waitFor();
  assert.equal(await page.getByRole("button", { name: /^(Restart|Delete) / }).count(), 0);
  await page.getByRole("button", { name: "Sign in to restart and delete pods" }).click();
  await signIn(changer);
  await change("Delete", "spare");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText('pod "default/spare" is ending on this board; its hub decides what follows').waitFor();
  const isOver = (pods: PodsByName): boolean => pods.get("spare")?.status?.phase === "Failed";
  const { reason, message } = (await node.waitForPods("the end of the spare pod", isOver)).get("spare")?.status ?? {};
  assert.equal(reason, "DeletedOnBoard");
  assert.equal(message, `The pod was deleted on its board by system:serviceaccount:default:${CHANGER} with its page`);
  const ask = (authorization: string): Promise<Response> =>
    fetch(`${boardUrl()}data/pods/default/loud-${BOARD}`, { method: "DELETE", headers: { authorization } });
  assert.equal((await ask(`Bearer ${reader}`)).status, 403);
  assert.equal((await ask("Bearer wrong")).status, 401);
});

test("10,000 boards are searched and walked without delay, and change while one looks", { skip }, async () => {
  await using pages = await FleetPages.start(10_000);
  browser.complaints.length = 0;
  await browser.show("desk", "light");
  await page.goto(pages.url);
  await page.getByLabel("Token").fill(FLEET_TOKEN);
  await page.keyboard.press("Enter");
  await page.getByText("10000 boards", { exact: true }).waitFor();
  await assertSound("the fleet's page");
  assert.ok((await page.locator(".virtual li").count()) < 60);
  const search = page.getByLabel(/^Search/);
  await search.fill("board-0777 0.1.0");
  await page.getByText("8 of 10000 boards").waitFor();
  await search.fill("");
  await search.focus();
  await page.keyboard.press("Tab");
  const focused = async (): Promise<string> => await page.evaluate("document.activeElement.textContent");
  // What is wrong comes first; the last is the last of those that are well.
  assert.match(await focused(), /Not ready/);
  await page.keyboard.press("End");
  assert.match(await focused(), new RegExp(boardName(9999)));
  await page.keyboard.press("ArrowUp");
  assert.match(await focused(), new RegExp(boardName(9998)));
  await page.getByRole("button", { name: /Away/ }).click();
  await page.getByText("104 of 10000 boards").waitFor();
  pages.fleet.set(boardName(0), { conditions: "Ready=Unknown", version: HOSTILE });
  await page.getByText("105 of 10000 boards").waitFor();
  await page.getByRole("link", { name: new RegExp(`${boardName(0)}.*<script>`) }).waitFor();
  assert.equal(await foreignElements(), 0);
  assert.deepEqual(browser.complaints, []);
});
