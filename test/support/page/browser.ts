/** A real browser, Debian's Chromium, for the tests of the pages. */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import axe from "axe-core";
import { type BrowserContext, chromium, type Page } from "playwright-core";
import { TempFolder } from "../unit/machine/temp-folder.ts";

const CHROMIUM = "/usr/bin/chromium";
const WITHOUT_NETLINK = join(import.meta.dirname, "without-netlink.c");
const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
/** Generous: the machine is shared. */
const WAIT_LIMIT_MS = 60_000;

/** Why tests with a browser cannot run here; false: they can. */
export const browserMissing: string | false = existsSync(CHROMIUM) ? false : "needs chromium, which npm test installs";

export type Screen = "phone" | "desk";
export type Scheme = "light" | "dark";

const SCREENS = { phone: { width: 360, height: 740 }, desk: { width: 1440, height: 900 } } as const;

/** A part of axe-core's answer. */
interface AxeResult {
  readonly violations: readonly {
    readonly id: string;
    readonly help: string;
    readonly nodes: readonly { readonly target: readonly string[]; readonly failureSummary?: string }[];
  }[];
}

export class Browser implements AsyncDisposable {
  readonly context: BrowserContext;
  readonly page: Page;
  /** Errors and warnings of the page's scripts, requests and policy. */
  readonly complaints: string[] = [];
  /** Hosts that were asked for anything. */
  readonly hosts = new Set<string>();
  readonly #profile: TempFolder;

  private constructor(context: BrowserContext, page: Page, profile: TempFolder) {
    this.context = context;
    this.page = page;
    this.#profile = profile;
    page.setDefaultTimeout(WAIT_LIMIT_MS);
    page.on("pageerror", (error) => this.complaints.push(error.message));
    page.on("console", (message) => {
      if (message.type() === "error" || message.type() === "warning") this.complaints.push(message.text());
    });
    page.on("request", (request) => {
      if (/^https?:/.test(request.url())) this.hosts.add(new URL(request.url()).host);
    });
  }

  static async start(): Promise<Browser> {
    const profile = new TempFolder();
    const library = profile.at("without-netlink.so");
    execFileSync("clang", ["-shared", "-fPIC", "-O1", "-o", library, WITHOUT_NETLINK]);
    const context = await chromium.launchPersistentContext(profile.at("profile"), {
      executablePath: CHROMIUM,
      env: { ...process.env, LD_PRELOAD: library },
      args: FLAGS,
      ignoreHTTPSErrors: true,
      bypassCSP: false,
    });
    return new Browser(context, context.pages()[0] ?? (await context.newPage()), profile);
  }

  async show(screen: Screen, scheme: Scheme): Promise<void> {
    await this.page.setViewportSize(SCREENS[screen]);
    await this.page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
  }

  /** @returns a sentence for each fault that axe-core finds; evaluated apart, as the page's policy forbids it there */
  async accessibilityFaults(): Promise<readonly string[]> {
    await this.page.evaluate(axe.source);
    const { violations } = await this.page.evaluate(
      async () => await (globalThis as unknown as { axe: { run(): Promise<AxeResult> } }).axe.run(),
    );
    return violations.flatMap(({ id, help, nodes }) =>
      nodes.map(({ target, failureSummary = "" }) => `${id}: ${help}: ${target.join(" ")}: ${failureSummary}`),
    );
  }

  /** True when something is wider than the screen. */
  async isCutOff(): Promise<boolean> {
    return await this.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.context.close();
    this.#profile[Symbol.dispose]();
  }
}
