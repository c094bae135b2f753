#include "runner/report/page/html.h"

#include <algorithm>

#include "registry/language/utf8.h"

namespace trainrun {

std::string escaped_html(const std::string& text) {
  std::string html;
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const uint32_t point = next_code_point(text, offset);
    if (point == kInvalidCodePoint || !is_printable(point)) {
      offset = std::max(offset, begin + 1);
      html += "&#xFFFD;";
      continue;
    }
    switch (point) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += text.substr(begin, offset - begin);
    }
  }
  return html;
}

std::string escaped_lines(const std::string& text) {
  std::string html;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    html += escaped_html(text.substr(begin, end - begin)) + (end < text.size() ? "\n" : "");
    begin = end + 1;
  }
  return html;
}

std::string script_json(const nlohmann::ordered_json& json) {
  const std::string text = json.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char letter : text) {
    if (letter == '<' || letter == '>' || letter == '&') {  // all three stand only within texts
      safe += letter == '<' ? "\\u003c" : letter == '>' ? "\\u003e" : "\\u0026";
    } else {
      safe += letter;
    }
  }
  return safe;
}

std::string base64(const std::string& bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(bytes.size() - i, 3);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) text += k <= count ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::string table_row(const std::vector<std::string>& cells, const char* tag) {
  std::string row = "<tr>";
  for (const std::string& cell : cells) row += "<" + std::string(tag) + ">" + cell + "</" + tag + ">";
  return row + "</tr>\n";
}

std::string html_table(const std::string& caption, const std::vector<std::string>& heads,
                       const std::vector<std::vector<std::string>>& rows, const std::string& style) {
  std::string html = "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"" + escaped_html(caption) +
                     "\"><table" + (style.empty() ? "" : " class=\"" + style + "\"") + "><caption>" +
                     escaped_html(caption) + "</caption>\n<thead><tr>";
  for (const std::string& head : heads) {
    html += head.empty() ? "<td></td>" : "<th scope=\"col\">" + head + "</th>";
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    html += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      html += i == 0 ? "<th scope=\"row\">" + row[i] + "</th>" : "<td>" + row[i] + "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string to_html(const HtmlPage& page) {
  constexpr const char* kPolicy =
      "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
  html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  html += "<meta http-equiv=\"Content-Security-Policy\" content=\"" + std::string(kPolicy) +
          (page.is_watched ? "; connect-src 'self'" : "") + "\">\n";
  html += "<title>" + escaped_html(page.title) + "</title><style>" + page.style + "</style></head><body>\n";
  html += page.body;
  for (const std::string& script : page.scripts) html += "<script>" + script + "</script>\n";
  return html + "</body></html>\n";
}

}  // namespace trainrun
