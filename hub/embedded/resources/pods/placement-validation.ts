/**
 * Validates affinity and topology spread of a pod (pkg/apis/core/validation, 1.34). Nodes do not act
 * on it, so the agent's model leaves it unchecked.
 */
import { labelValueProblems, qualifiedNameProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import {
  duplicateValue,
  type FieldError,
  forbiddenValue,
  invalidValue,
  notSupportedValue,
  requiredValue,
} from "../../api/field-errors.ts";
import { fieldAt, listAt, textAt } from "../../api/object-fields.ts";

const REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution";
const MAX_WEIGHT = 100;
const UNSATISFIABLE = ["DoNotSchedule", "ScheduleAnyway"];

/** @param path of the spec, `spec` or `spec.template.spec` */
export const validatePlacement = (spec: unknown, path: string): readonly FieldError[] => [
  ...validateNodeAffinity(fieldAt(spec, "affinity", "nodeAffinity"), `${path}.affinity.nodeAffinity`),
  ...["podAffinity", "podAntiAffinity"].flatMap((kind) =>
    validatePodAffinity(fieldAt(spec, "affinity", kind), `${path}.affinity.${kind}`),
  ),
  ...validateSpread(listAt(spec, "topologySpreadConstraints"), `${path}.topologySpreadConstraints`),
  ...validateGates(listAt(spec, "schedulingGates"), `${path}.schedulingGates`),
];

function validateGates(gates: readonly unknown[], path: string): FieldError[] {
  const known = new Set<string>();
  return gates.flatMap((gate, index) => {
    const name = textAt(gate, "name");
    const isTaken = known.has(name);
    known.add(name);
    return [
      ...qualifiedNameProblems(name).map((problem) => invalidValue(`${path}[${index}]`, name, problem)),
      ...(isTaken ? [duplicateValue(`${path}[${index}]`, name)] : []),
    ];
  });
}

function validateNodeAffinity(affinity: unknown, path: string): FieldError[] {
  const terms = listAt(affinity, REQUIRED, "nodeSelectorTerms");
  const errors = terms.flatMap((term, index) => validateTerm(term, `${path}.${REQUIRED}.nodeSelectorTerms[${index}]`));
  listAt(affinity, PREFERRED).forEach((preferred, index) => {
    const at = `${path}.${PREFERRED}[${index}]`;
    errors.push(
      ...validateWeight(preferred, at),
      ...validateTerm(fieldAt(preferred, "preference"), `${at}.preference`),
    );
  });
  return errors;
}

const validateTerm = (term: unknown, path: string): FieldError[] => [
  ...listAt(term, "matchExpressions").flatMap((each, index) =>
    validateRequirement(each, true, `${path}.matchExpressions[${index}]`),
  ),
  ...listAt(term, "matchFields").flatMap((each, index) => validateField(each, `${path}.matchFields[${index}]`)),
];

/** @param compares whether `Gt` and `Lt` are known: of nodes, not of pods */
function validateRequirement(requirement: unknown, compares: boolean, path: string): FieldError[] {
  const [key, operator, values] = [
    textAt(requirement, "key"),
    textAt(requirement, "operator"),
    listAt(requirement, "values"),
  ];
  const errors = qualifiedNameProblems(key).map((problem) => invalidValue(`${path}.key`, key, problem));
  if (operator === "In" || operator === "NotIn") {
    if (values.length === 0) {
      errors.push(requiredValue(`${path}.values`, "must be specified when `operator` is 'In' or 'NotIn'"));
    }
    values.forEach((value, index) => {
      const problems = labelValueProblems(String(value));
      errors.push(...problems.map((problem) => invalidValue(`${path}.values[${index}]`, value, problem)));
    });
  } else if (operator === "Exists" || operator === "DoesNotExist") {
    if (values.length > 0) {
      errors.push(
        forbiddenValue(`${path}.values`, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"),
      );
    }
  } else if (compares && (operator === "Gt" || operator === "Lt")) {
    if (values.length !== 1) {
      errors.push(requiredValue(`${path}.values`, "must be specified single value when `operator` is 'Lt' or 'Gt'"));
    }
  } else errors.push(invalidValue(`${path}.operator`, operator, "not a valid selector operator"));
  return errors;
}

/** One name of one node. */
function validateField(requirement: unknown, path: string): FieldError[] {
  const [key, operator, values] = [
    textAt(requirement, "key"),
    textAt(requirement, "operator"),
    listAt(requirement, "values"),
  ];
  if (operator !== "In" && operator !== "NotIn") {
    return [invalidValue(`${path}.operator`, operator, "not a valid selector operator")];
  }
  if (values.length !== 1) {
    const detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
    return [requiredValue(`${path}.values`, detail)];
  }
  return key === "metadata.name" ? [] : [invalidValue(`${path}.key`, key, "not a valid field selector key")];
}

function validateWeight(preferred: unknown, path: string): FieldError[] {
  const weight = Number(fieldAt(preferred, "weight") ?? 0);
  return weight >= 1 && weight <= MAX_WEIGHT
    ? []
    : [invalidValue(`${path}.weight`, weight, "must be in the range 1-100")];
}

function validatePodAffinity(affinity: unknown, path: string): FieldError[] {
  const errors = listAt(affinity, REQUIRED).flatMap((term, index) =>
    validatePodTerm(term, `${path}.${REQUIRED}[${index}]`),
  );
  listAt(affinity, PREFERRED).forEach((preferred, index) => {
    const at = `${path}.${PREFERRED}[${index}]`;
    const term = fieldAt(preferred, "podAffinityTerm");
    errors.push(...validateWeight(preferred, at), ...validatePodTerm(term, `${at}.podAffinityTerm`));
  });
  return errors;
}

function validatePodTerm(term: unknown, path: string): FieldError[] {
  const errors = ["labelSelector", "namespaceSelector"].flatMap((name) =>
    validateLabelSelector(fieldAt(term, name), `${path}.${name}`),
  );
  const key = textAt(term, "topologyKey");
  if (key === "") errors.push(requiredValue(`${path}.topologyKey`, "can not be empty"));
  else errors.push(...qualifiedNameProblems(key).map((problem) => invalidValue(`${path}.topologyKey`, key, problem)));
  return errors;
}

export const validateLabelSelector = (selector: unknown, path: string): FieldError[] =>
  listAt(selector, "matchExpressions").flatMap((each, index) =>
    validateRequirement(each, false, `${path}.matchExpressions[${index}]`),
  );

function validateSpread(constraints: readonly unknown[], path: string): FieldError[] {
  return constraints.flatMap((constraint, index) => {
    const at = `${path}[${index}]`;
    const errors = validateLabelSelector(fieldAt(constraint, "labelSelector"), `${at}.labelSelector`);
    const skew = Number(fieldAt(constraint, "maxSkew") ?? 0);
    if (skew <= 0) errors.push(invalidValue(`${at}.maxSkew`, skew, "must be greater than zero"));
    if (textAt(constraint, "topologyKey") === "") errors.push(requiredValue(`${at}.topologyKey`, "can not be empty"));
    const action = textAt(constraint, "whenUnsatisfiable");
    if (!UNSATISFIABLE.includes(action)) {
      errors.push(notSupportedValue(`${at}.whenUnsatisfiable`, action, UNSATISFIABLE));
    }
    return errors;
  });
}
