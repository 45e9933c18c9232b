/* Counts how often it was started, in a file on its volume, and waits. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
  const char *folder = getenv("FOLDER");
  char path[256];
  snprintf(path, sizeof path, "%s/starts", folder == NULL ? "/data" : folder);

  long starts = 0;
  FILE *file = fopen(path, "r");
  if (file != NULL) {
    if (fscanf(file, "%ld", &starts) != 1) starts = 0;
    fclose(file);
  }
  starts += 1;

  file = fopen(path, "w");
  if (file == NULL) {
    perror(path);
    return 1;
  }
  fprintf(file, "%ld\n", starts);
  fclose(file);

  printf("start %ld\n", starts);
  fflush(stdout);
  for (;;) sleep(3600);
}
