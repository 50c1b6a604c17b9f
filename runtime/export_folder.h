/* The directory of an export: empty, or that of an earlier export, whose files are replaced. */
#ifndef SHARDC_RT_EXPORT_FOLDER_H
#define SHARDC_RT_EXPORT_FOLDER_H
#include "run.h"
#include "runtime/store/safetensors.h"

enum { EXPORT_FILES = 12 };

typedef struct ExportFolder {
  const char *path;
  uint64_t inode[EXPORT_FILES]; /* of each file of the earlier export; 0: it has no such file */
} ExportFolder;

/* Metadata of the weights of an export; PyTorch's readers ask for the format. */
extern const SafePair rt_export_marks[2];

/* False: the directory has other files, or those from which this export reads (init: --init, NULL
   without it). Writes nothing. */
bool rt_export_folder(ExportFolder *folder, const char *path, const char *init, Fault *f);
/* Removes the files of the earlier export that were not replaced. */
void rt_export_tidy(const ExportFolder *folder);
#endif
