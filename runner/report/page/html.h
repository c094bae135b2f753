#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace trainrun {

// What the HTML pages that trainrun writes have in common. Each is one file, which needs no other and no network.

/// For HTML: neither a tag nor an entity, and well-formed; all on one line.
std::string escaped_html(const std::string& text);
/// The same with its lines.
std::string escaped_lines(const std::string& text);
/// For a <script>: no text within can end it.
std::string script_json(const nlohmann::ordered_json& json);
std::string base64(const std::string& bytes);

/// A row of cells that are HTML already.
std::string table_row(const std::vector<std::string>& cells, const char* tag = "td");

/// A table in a region of its own, which scrolls where it is too wide, by keys, too. `caption` is text; `heads` and the
/// cells are HTML already. The first cell of a row is its head.
std::string html_table(const std::string& caption, const std::vector<std::string>& heads,
                       const std::vector<std::vector<std::string>>& rows, const std::string& style = "");

struct HtmlPage {
  std::string title;                      // text
  std::string style;                      // CSS
  std::string body;                       // HTML
  std::vector<std::string> scripts = {};  // of JavaScript, run in this order
  bool is_watched = false;                // its script may ask the server that it comes from, and no other
};
/// The whole file. Whatever the page holds, the browser neither fetches nor sends anything for it, unless it is watched.
std::string to_html(const HtmlPage& page);

}  // namespace trainrun
