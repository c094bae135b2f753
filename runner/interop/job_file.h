#pragma once

#include <string>
#include <vector>

#include "runner/recipe/recipe.h"

namespace trainrun {

/// What a job file says besides the recipe.
struct JobFileOptions {
  std::string program = "trainrun";    // as the job calls it
  std::vector<std::string> arguments;  // of `trainrun run`: the recipe's path, its overrides
  std::string image;                   // kubernetes: of the containers
  std::string partition;               // slurm; "": the cluster's own
  std::string time;                    // slurm; "": a placeholder
};

/// The launchers that `job_file` knows.
std::vector<std::string> job_launchers();

/// A file, or a command, that starts the recipe's processes under `launcher`: an sbatch script, a manifest of a
/// PyTorchJob (kubeflow.org/v1), or one line for a shell. Each process gets the same arguments and takes rank and
/// meeting place from what starts it (runner/distributed/rendezvous.h). `launcher` is one of job_launchers().
std::string job_file(const std::string& launcher, const Recipe& recipe, const JobFileOptions& options);

}  // namespace trainrun
