#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/model/model.h"

namespace trainrun {

/// The recipe's `models`: models that stand beside its own and are never trained, such as a teacher, or what the model
/// was before training. They do not know of each other, and no checkpoint holds them.
class ModelRoles {
 public:
  /// Builds them for batches of `info`; random numbers go on as if nothing had been drawn. Throws RecipeError where one
  /// does not fit, is called like something else, or has no weights that can be read again.
  ModelRoles(const Recipe& recipe, const DatasetInfo& info, const Model& owner);

  std::optional<size_t> find(const std::string& name) const;
  /// A tensor like the role's output.
  at::Tensor example(size_t role) const;
  /// The role's output for a batch, without a way back to its weights; reads these first where `load` has not.
  at::Tensor run(size_t role, const Batch& batch);

  /// Reads their weights; what was passed over is returned, a line each. Throws DataError, Error.
  std::vector<std::string> load();
  /// Follows the owner, which was moved there.
  void to(at::Device device, const Model& owner);
  /// What their weights take, without those that they share with the owner.
  int64_t num_bytes() const;

 private:
  struct Role {
    std::string name;
    std::shared_ptr<const Recipe> recipe;  // of the role alone
    std::unique_ptr<Model> model;
    bool shares = false;  // the owner's weights
  };
  void build(Role& role, const Recipe& recipe, const RoleSection& section, const DatasetInfo& info, const Model& owner);

  std::vector<Role> roles_;
  bool is_loaded_ = false;
};

}  // namespace trainrun
