/** Installs the system packages and builds the programs and examples that end-to-end tests need. */
import { buildPrograms } from "../build/build.ts";
import { buildExamples } from "../build/build-examples.ts";
import { installKubectl } from "./install-kubectl.ts";
import { installTestSystem } from "./install-test-system.ts";

installTestSystem();
installKubectl();
await buildPrograms(undefined, "kept");
await buildExamples();
