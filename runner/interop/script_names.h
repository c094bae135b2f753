#pragma once

#include <map>
#include <set>
#include <string>

namespace trainrun {

/// Names that TorchScript's code can have. Its writer takes any, and then writes what torch.jit.load cannot read: words of
/// Python, spaces, characters that are not ASCII.
class ScriptNames {
 public:
  /// `name` where it can be that of an argument of `forward`, else one like it that no other argument has.
  std::string argument(const std::string& name);
  /// The same for a module or tensor within a module, which more names can be.
  std::string attribute(const std::string& name);

  /// What got another name, and which.
  const std::map<std::string, std::string>& changed() const { return changed_; }

 private:
  std::string given(const std::string& name, std::string wanted);

  std::set<std::string> given_;
  std::map<std::string, std::string> changed_;
};

}  // namespace trainrun
