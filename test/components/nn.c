/*
 * Has models computed, by hand-written bindings of wasi:nn. Does what its arguments say, one step after the other:
 *   file PATH | name NAME (load a model) | gpu PATH (for a target that no board has) |
 *   run INPUT COUNT FIRST (a tensor of COUNT numbers FP32, each one more than the one before) | short INPUT COUNT (with
 *   too few bytes) | again N (contexts of the same model, each dropped) | drop
 * and says the outputs, or `error CODE: TEXT`.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define TENSOR "wasi:nn/tensor@0.2.0-rc-2024-10-28"
#define ERRORS "wasi:nn/errors@0.2.0-rc-2024-10-28"
#define INFERENCE "wasi:nn/inference@0.2.0-rc-2024-10-28"
#define GRAPH "wasi:nn/graph@0.2.0-rc-2024-10-28"

typedef struct { const void *at; uint32_t length; } list;
typedef struct { list name; int32_t tensor; } named;

IMPORT(TENSOR, "[constructor]tensor")
int32_t tensor_new(const uint32_t *, uint32_t, int32_t, const void *, uint32_t);
IMPORT(TENSOR, "[method]tensor.dimensions") void tensor_dimensions(int32_t, list *);
IMPORT(TENSOR, "[method]tensor.ty") int32_t tensor_type(int32_t);
IMPORT(TENSOR, "[method]tensor.data") void tensor_data(int32_t, list *);
IMPORT(TENSOR, "[resource-drop]tensor") void tensor_drop(int32_t);
IMPORT(ERRORS, "[method]error.code") int32_t error_code(int32_t);
IMPORT(ERRORS, "[method]error.data") void error_data(int32_t, list *);
IMPORT(ERRORS, "[resource-drop]error") void error_drop(int32_t);
IMPORT(GRAPH, "load") void graph_load(const list *, uint32_t, int32_t, int32_t, void *);
IMPORT(GRAPH, "load-by-name") void graph_load_by_name(const char *, uint32_t, void *);
IMPORT(GRAPH, "[method]graph.init-execution-context") void graph_init(int32_t, void *);
IMPORT(GRAPH, "[resource-drop]graph") void graph_drop(int32_t);
IMPORT(INFERENCE, "[method]graph-execution-context.compute")
void context_compute(int32_t, const named *, uint32_t, void *);
IMPORT(INFERENCE, "[resource-drop]graph-execution-context") void context_drop(int32_t);

enum { FP32 = 1, ONNX = 1, CPU = 0, GPU = 1 };
static const char *const CODES[] = {"invalid-argument", "invalid-encoding", "timeout", "runtime-error",
  "unsupported-operation", "too-large", "not-found", "security", "unknown"};
static const char *const TYPES[] = {"FP16", "FP32", "FP64", "BF16", "U8", "I32", "I64"};

static union { uint8_t bytes[16]; uint32_t words[4]; } out;
static int32_t graph = -1, context = -1;

/* Whether it was refused; then it is said. */
static int refused(void) {
  if (out.bytes[0] == 0) return 0;
  list text;
  error_data(out.words[1], &text);
  printf("error %s: %.*s\n", CODES[error_code(out.words[1])], (int)text.length, (const char *)text.at);
  error_drop(out.words[1]);
  return 1;
}

static void drop(void) {
  if (context >= 0) context_drop(context);
  if (graph >= 0) graph_drop(graph);
  graph = context = -1;
}

static void loaded(void) {
  if (refused()) return;
  graph = out.words[1];
  graph_init(graph, &out);
  if (refused()) return;
  context = out.words[1];
  printf("loaded\n");
}

static void load_file(const char *path, int target) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) { printf("cannot open %s\n", path); exit(2); }
  static uint8_t bytes[1 << 20];
  uint32_t length = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  /* In two parts. */
  list parts[2] = {{bytes, length / 2}, {bytes + length / 2, length - length / 2}};
  graph_load(parts, 2, ONNX, target, &out);
  loaded();
}

static void say(void) {
  const named *outputs = (const named *)(uintptr_t)out.words[1];
  for (uint32_t i = 0; i < out.words[2]; i++) {
    list dimensions, data;
    tensor_dimensions(outputs[i].tensor, &dimensions);
    tensor_data(outputs[i].tensor, &data);
    printf("%.*s %s [", (int)outputs[i].name.length, (const char *)outputs[i].name.at,
      TYPES[tensor_type(outputs[i].tensor)]);
    for (uint32_t j = 0; j < dimensions.length; j++) printf(j ? " %u" : "%u", ((const uint32_t *)dimensions.at)[j]);
    printf("]");
    for (uint32_t j = 0; j < data.length / 4; j++) printf(" %g", ((const float *)data.at)[j]);
    printf("\n");
    tensor_drop(outputs[i].tensor);
  }
}

static void run(const char *input, uint32_t count, float first, uint32_t missing, int quiet) {
  float *numbers = malloc((count + 1) * sizeof *numbers);
  for (uint32_t i = 0; i < count; i++) numbers[i] = first + i;
  uint32_t dimensions[2] = {1, count};
  int32_t tensor = tensor_new(dimensions, 2, FP32, numbers, count * 4 - missing);
  named inputs[1] = {{{input, strlen(input)}, tensor}};
  context_compute(context, inputs, 1, &out);
  free(numbers);
  if (!refused() && !quiet) say();
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    const char *step = argv[i];
    if (strcmp(step, "file") == 0) load_file(argv[++i], CPU);
    else if (strcmp(step, "gpu") == 0) load_file(argv[++i], GPU);
    else if (strcmp(step, "name") == 0) {
      const char *name = argv[++i];
      graph_load_by_name(name, strlen(name), &out);
      loaded();
    } else if (strcmp(step, "run") == 0) {
      const char *input = argv[++i];
      int count = atoi(argv[++i]);
      run(input, count, atof(argv[++i]), 0, 0);
    } else if (strcmp(step, "short") == 0) {
      const char *input = argv[++i];
      run(input, atoi(argv[++i]), 0, 1, 0);
    } else if (strcmp(step, "again") == 0) {
      for (int n = atoi(argv[++i]); n > 0; n--) {
        context_drop(context);
        graph_init(graph, &out);
        if (refused()) return 1;
        context = out.words[1];
      }
      printf("again\n");
    } else if (strcmp(step, "drop") == 0) {
      drop();
      printf("dropped\n");
    } else return 2;
  }
  return 0;
}
