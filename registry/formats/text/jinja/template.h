#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "registry/formats/text/jinja/value.h"

namespace trainrun::jinja {

class Block;

/// What a template gives.
struct Rendered {
  std::string text;
  std::vector<std::pair<size_t, size_t>> marked;  // begin and end of each {% generation %} block in it, in bytes
};

/// A Jinja template as transformers renders chat templates: Jinja2's sandbox with trim_blocks, lstrip_blocks, loop
/// controls, raise_exception, strftime_now, transformers' tojson, and {% generation %}. Not: import, include, extends,
/// block, recursive loops. Steps, depth and what is made are bounded.
class Template {
 public:
  /// Throws TemplateError: "line 3: message".
  explicit Template(std::string_view source);
  ~Template();
  Template(Template&&) noexcept;

  /// Throws TemplateError. Safe to call from several threads.
  Rendered render(const std::map<std::string, Value>& variables) const;
  /// Whether a {% generation %} block is written anywhere in it.
  bool marks() const { return marks_; }

 private:
  std::unique_ptr<const Block> block_;
  bool marks_ = false;
};

}  // namespace trainrun::jinja
