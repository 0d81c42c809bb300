// Lets one user in, who is known by name and password.
#include "proxy_wasm.h"

typedef struct { pw_text username, credentials; } settings;

PW_EXPORT(proxy_on_configure)
bool proxy_on_configure(uint32_t root, size_t size) {
    pw_begin();
    settings* own = malloc(sizeof(settings));
    pw_text configuration = pw_configuration(size), password;
    if (!pw_setting(configuration, PW_TEXT("username"), &own->username)) return false;
    if (!pw_setting(configuration, PW_TEXT("password"), &password)) return false;
    own->credentials = pw_join(pw_join(own->username, PW_TEXT(":")), password);
    pw_configured(root, own);
    return true;
}

// The six bits that a character of base64 stands for; -1 when it is none.
static int sextet(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool decode(pw_text encoded, pw_text* decoded) {
    if (encoded.size % 4 != 0) return false;
    for (int pads = 0; pads < 2 && encoded.size > 0 && encoded.at[encoded.size - 1] == '='; pads++) encoded.size--;
    unsigned char* out = malloc(encoded.size);
    size_t size = 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < encoded.size; i++) {
        int six = sextet(encoded.at[i]);
        if (six < 0) return false;
        bits = bits << 6 | (uint32_t)six;
        if (i % 4 != 0) out[size++] = (unsigned char)(bits >> (6 - i % 4 * 2));
    }
    *decoded = (pw_text){(char*)out, size};
    return true;
}

static bool is_known(pw_text credentials) {
    pw_text field, decoded, scheme = PW_TEXT("Basic ");
    return pw_header(PW_REQUEST_HEADERS, PW_TEXT("authorization"), &field) && pw_begins(field, scheme)
        && decode(pw_from(field, scheme.size), &decoded) && pw_equal(decoded, credentials);
}

PW_EXPORT(proxy_on_request_headers)
pw_action proxy_on_request_headers(uint32_t context, uint32_t count, uint32_t end) {
    pw_begin();
    const settings* own = pw_settings(context);
    if (!is_known(own->credentials)) {
        const pw_pair challenge = {PW_TEXT("www-authenticate"), PW_TEXT("Basic realm=\"postrider\"")};
        pw_respond(401, &challenge, 1, PW_TEXT("unauthorized\n"));
        return PW_PAUSE;
    }
    pw_replace(PW_REQUEST_HEADERS, PW_TEXT("x-auth-user"), own->username);
    return PW_CONTINUE;
}
