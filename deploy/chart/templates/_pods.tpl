{{- /* Parts that the pods of both tiers share. */}}

{{- define "tandem.podSecurity" -}}
{runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, fsGroupChangePolicy: OnRootMismatch, seccompProfile: {type: RuntimeDefault}}
{{- end -}}

{{- define "tandem.containerSecurity" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end -}}

{{- /* The grace period after which the kubelet kills a pod. Both times of the drain fit into it, and then the end of an
engine in the pod. */}}
{{- define "tandem.grace" -}}
{{- $engine := default dict .engine -}}
{{ add .drainDelaySeconds .drainSeconds 5 (ternary $engine.stopSeconds 0 (and $engine.kind $engine.image | empty | not)) }}
{{- end -}}

{{- /* Where the pods of a tier run: the argument is {root, tier, selector, priority}. */}}
{{- define "tandem.placement" -}}
{{- $priority := default (ternary .priority "" .root.Values.priorityClasses.create) .tier.priorityClassName -}}
{{- with $priority }}
priorityClassName: {{ . }}
{{- end }}
{{- with .tier.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .tier.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .tier.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- $tolerations := .tier.tolerations }}
{{- if dig "gpu" "enabled" false .tier }}
{{- $tolerations = append $tolerations (dict "key" .tier.gpu.resourceName "operator" "Exists" "effect" "NoSchedule") }}
{{- end }}
{{- with $tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- if .tier.topologySpread.enabled }}
topologySpreadConstraints:
{{- range .tier.topologySpread.topologyKeys }}
- topologyKey: {{ . }}
  maxSkew: 1
  whenUnsatisfiable: {{ $.tier.topologySpread.whenUnsatisfiable }}
  labelSelector:
    matchLabels: {{- $.selector | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
{{- end -}}

{{- /* Flags that all services have: the argument is {root, tier}. */}}
{{- define "tandem.commonFlags" -}}
- --health-listen={{ .root.Values.listenHost }}:8081
- --drain-delay-seconds={{ .tier.drainDelaySeconds }}
- --drain-seconds={{ .tier.drainSeconds }}
- --log={{ .root.Values.log.filter }}
- --log-format={{ .root.Values.log.format }}
{{- if .root.Values.metrics.enabled }}
- --metrics-listen={{ .root.Values.listenHost }}:9464
{{- end }}
{{- with .root.Values.telemetry }}
{{- if .otlpEndpoint }}
- --otlp-endpoint={{ .otlpEndpoint }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* OpenTelemetry's variables of a container; the argument is .Values.telemetry. Those of the operator follow. */}}
{{- define "tandem.telemetryEnv" -}}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ .traceRatio | toString | quote }}}
{{- if and .otlpEndpoint .otlpCaSecretName }}
- {name: OTEL_EXPORTER_OTLP_CERTIFICATE, value: /etc/tandem/otlp/ca.crt}
{{- end }}
{{- end -}}

{{- /* The strategy of a Deployment. `Recreate` has no other fields, which the defaults would add. */}}
{{- define "tandem.strategy" -}}
{{ ternary (dict "type" "Recreate") .strategy (eq .strategy.type "Recreate") | toJson }}
{{- end -}}

{{- /* The names of render-svc's certificate as a client, for which gen-svc shares its places among render-svc's
callers. */}}
{{- define "tandem.delegates" -}}
{{- $tls := .Values.tls -}}
{{- $isMade := and (eq $tls.source "certManager") (not $tls.generation.clientSecretName) -}}
{{- $tls.generation.clientNames | default (ternary (list (include "tandem.render.name" .)) (list) $isMade) | toJson -}}
{{- end -}}

{{- /* The operator's own flags. A list repeats its flag, and null removes it. The argument is {flags,
key}. */}}
{{- define "tandem.ownFlags" -}}
{{- $own := list "model" "model-id" "models" "config" "generate" "generate-ca" "generate-cert" "generate-key" "generate-token-file" -}}
{{- $own = concat $own (list "listen" "control-listen" "control-token-file" "engine" "engine-url" "engine-ca" "engine-token-file" "health-listen" "metrics-listen" "tls-cert" "tls-key" "tls-client-ca" "tls-delegate") -}}
{{- $own = concat $own (list "token-file" "insecure" "drain-delay-seconds" "drain-seconds" "log" "log-format" "otlp-endpoint") -}}
{{- $own = append $own "device" -}}
{{- range $name, $value := .flags }}
{{- if and (has $name $own) (not (and (eq $name "device") (not $.isGpu))) }}
{{- fail (printf "%s.%s is a flag that the chart sets itself: use the value of values.yaml for it" $.key $name) }}
{{- end }}
{{- range $one := ternary $value (list $value) (kindIs "slice" $value) }}
{{- if kindIs "invalid" $one }}{{ continue }}{{ end }}
{{- if kindIs "float64" $one }}
- {{ printf "--%s=%s" $name (toJson $one) | quote }}
{{- else if and (kindIs "bool" $one) $one }}
- {{ printf "--%s" $name | quote }}
{{- else if not (kindIs "bool" $one) }}
- {{ printf "--%s=%v" $name $one | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The end of the tag of gen-svc's image: with CUDA, or without libtorch. */}}
{{- define "tandem.genSuffix" -}}
{{- if and .tier.textOnly .tier.gpu.enabled -}}
{{- fail (printf "%s.textOnly is the image without libtorch, which computes on GPUs: leave out textOnly or gpu.enabled" .key) -}}
{{- end -}}
{{- if .tier.gpu.enabled -}}-cuda{{- else if .tier.textOnly -}}-text{{- end -}}
{{- end -}}

{{- /* The GPUs of a pod, as the value of --device. */}}
{{- define "tandem.gpus" -}}
{{- $devices := list -}}
{{- range $index := until (int .gpu.count) -}}
{{- $devices = append $devices (printf "cuda:%d" $index) -}}
{{- end -}}
{{- join "," $devices -}}
{{- end -}}

{{- /* The probes. Their page needs no TLS and no token, which the kubelet's gRPC probes cannot send.
Startup: the models are loaded. Readiness: the service takes calls, and is not draining. Liveness: a
restart is the remedy, because the engine has failed or does not progress. */}}
{{- define "tandem.probes" -}}
startupProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: {{ max 1 (div .startupSeconds 2) }}
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /livez, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{- /* The name of the Secret of one certificate: the argument is {root, part, name}. */}}
{{- define "tandem.tlsSecret" -}}
{{- $given := index .root.Values.tls .part .name -}}
{{- if $given -}}
{{- $given -}}
{{- else if eq .root.Values.tls.source "certManager" -}}
{{- $kind := ternary "client" .part (eq .name "clientSecretName") -}}
{{- printf "%s-%s-tls" (include "tandem.fullname" .root) $kind -}}
{{- else -}}
{{- fail (printf "tls.%s.%s is empty: name a Secret, or set tls.source to certManager" .part .name) -}}
{{- end -}}
{{- end -}}

{{- define "tandem.scheme" -}}{{ ternary "https" "http" .enabled }}{{- end -}}
{{- define "tandem.appProtocol" -}}{{ ternary "https" "kubernetes.io/h2c" .enabled }}{{- end -}}

{{- /* The replicas field, or nothing. With autoscaling, the autoscaler owns the number. If only this
chart has set the field before, the API server would set it to 1 once Helm removes it: so the number of
the running Deployment is repeated, until the autoscaler has changed it. The argument is {root, name,
replicas, isScaled}. */}}
{{- define "tandem.replicas" -}}
{{- if not .isScaled -}}
replicas: {{ .replicas }}
{{- else if include "tandem.hasReplicas" . -}}
{{- $running := lookup "apps/v1" "Deployment" .root.Release.Namespace .name -}}
replicas: {{ int $running.spec.replicas }}
{{- end -}}
{{- end -}}

{{- /* Text if the manifest has or had the replicas field. An annotation of the Deployment records it. */}}
{{- define "tandem.hasReplicas" -}}
{{- if not .isScaled -}}
true
{{- else -}}
{{- $running := lookup "apps/v1" "Deployment" .root.Release.Namespace .name | default dict -}}
{{- if and (dig "metadata" "annotations" "tandem/replicas" "" $running) (not (include "tandem.isScaledByOther" $running)) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Text if another client has set the replicas field through the subresource `scale`, so that Helm can
leave it. A rollback then keeps the number too. Only with server-side apply does the field remain.
The argument is the Deployment. */}}
{{- define "tandem.isScaledByOther" -}}
{{- $isApplied := false -}}{{- $hasOther := false -}}
{{- range dig "metadata" "managedFields" list . -}}
{{- if and (eq .manager "helm") (eq .operation "Apply") -}}{{- $isApplied = true -}}{{- end -}}
{{- if and (eq (dig "subresource" "" .) "scale") (hasKey (dig "fieldsV1" "f:spec" dict .) "f:replicas") -}}{{- $hasOther = true -}}{{- end -}}
{{- end -}}
{{- if and $isApplied $hasOther -}}true{{- end -}}
{{- end -}}
